// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"strings"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Fact is a line of the page of kubectl di describe.
type Fact struct{ Part, Title, Text string }

// Facts returns what kubectl di describe says about a job, without its lists.
func Facts(job *v2alpha1.DIJob, now time.Time) []Fact {
	p := &page{job: job, now: now}
	var facts []Fact
	for _, part := range []struct {
		name    string
		isShown bool
		rows    func() table
	}{
		{"Job", true, p.summary},
		{"Allocation", job.Spec.Preemptible, p.allocation},
		{"Autoscaling", p.isAutoscaled(), p.autoscaling},
		{"Last failure", job.Status.LastFailure != nil, p.lastFailure},
	} {
		if !part.isShown {
			continue
		}
		for _, row := range part.rows() {
			fact := Fact{Part: part.name, Text: row[len(row)-1]}
			if len(row) > 1 {
				fact.Title = strings.TrimSuffix(row[0], ":")
			}
			facts = append(facts, fact)
		}
	}
	return facts
}
