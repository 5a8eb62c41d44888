// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/json"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
)

// maxDepth bounds how deep the numbers of a report are looked for.
const maxDepth = 4

// Sample returns what a job reports: each number of its profilings by its path, such as progress.done.
// Of a list the last entry counts. ok is false if the report has no number, or is the last one.
func Sample(job *v2alpha1.DIJob, last []byte, now time.Time) (sample record.Sample, ok bool) {
	report := job.Status.Profilings
	if report == nil || bytes.Equal(report.Raw, last) {
		return sample, false
	}
	var decoded any
	if json.Unmarshal(report.Raw, &decoded) != nil {
		return sample, false
	}
	sample = record.Sample{At: now.UTC(), Values: map[string]record.Mean{}}
	collect(sample.Values, "", decoded, maxDepth)
	delete(sample.Values, "version")
	sample = record.BoundSample(sample)
	return sample, len(sample.Values) > 0
}

// curveOf returns the series that a job's report names as its curve; "" for none.
func curveOf(job *v2alpha1.DIJob) string {
	var report struct {
		Curve string `json:"curve"`
	}
	if job.Status.Profilings == nil || json.Unmarshal(job.Status.Profilings.Raw, &report) != nil {
		return ""
	}
	return report.Curve
}

func collect(into map[string]record.Mean, path string, value any, depth int) {
	switch value := value.(type) {
	case float64:
		into[path] = record.Mean{Sum: value, Count: 1}
	case []any:
		if depth > 0 && len(value) > 0 {
			collect(into, path, value[len(value)-1], depth-1)
		}
	case map[string]any:
		if depth == 0 {
			return
		}
		for name, inner := range value {
			if path != "" {
				name = path + "." + name
			}
			collect(into, name, inner, depth-1)
		}
	}
}
