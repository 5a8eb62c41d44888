// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"math"
)

// tolerance returns how far from its recorded mean a baseline may be. Optimus has near-ties between step
// times that the last digit decides. Pollux is random: about 5 % from run to run.
func tolerance(policy string) (part float64, isCompared bool) {
	switch policy {
	case "optimus":
		return 0.005, true
	case "pollux":
		return 0.03, true
	}
	return 0, false
}

// Comparison is what a check has found.
type Comparison struct {
	// Exact of Compared jobs have their recorded completion time.
	Exact, Compared int
	// Ratio is that to the recorded mean; NaN where there is none.
	Ratio float64
	// Differences say what must not be; none if the check has passed.
	Differences []string
}

// Check compares an outcome with the recorded results of the same policy: each job of Tiresias, which
// has no randomness and no ties, and the mean of the others.
func (o *Outcome) Check(traces *Traces) Comparison {
	found := Comparison{Ratio: o.RatioToRecorded(traces, o.Policy)}
	for i, name := range o.Workloads {
		recorded := traces.Recorded(o.Policy, &Workload{Load: o.Load, Name: name})
		for j := range o.Results[i].Jobs {
			job := &o.Results[i].Jobs[j]
			seconds, known := recorded[job.Name]
			if !known {
				continue
			}
			found.Compared++
			if seconds == job.JCT() {
				found.Exact++
			} else if o.Policy == "tiresias" {
				found.Differences = append(found.Differences, fmt.Sprintf(
					"tiresias, load %s, %s: job %s takes %d s, recorded are %d s", o.Load, name, job.Name, job.JCT(), seconds))
			}
		}
	}
	part, isCompared := tolerance(o.Policy)
	if isCompared && math.Abs(found.Ratio-1) > part {
		found.Differences = append(found.Differences, fmt.Sprintf(
			"%s, load %s: the mean is %.4f of the recorded one: must be within %g of 1", o.Policy, o.Load, found.Ratio, part))
	}
	return found
}
