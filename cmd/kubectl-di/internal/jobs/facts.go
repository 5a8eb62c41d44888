// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"strings"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
)

// Fact is a line of the page of kubectl di describe.
type Fact struct{ Part, Title, Text string }

// Facts returns what kubectl di describe says about a job, without its lists.
func Facts(o *jobview.Observed, view *jobview.View) []Fact {
	p := &page{Observed: *o, view: view}
	var facts []Fact
	for _, part := range append([]part{{title: "Job", isShown: true, rows: p.summary()}}, p.facts()...) {
		switch part.title {
		case "Job", partAllocation, partAutoscaling, partFailure:
		default:
			continue
		}
		for _, row := range part.rows {
			if !part.isShown {
				break
			}
			fact := Fact{Part: part.title, Text: row[len(row)-1]}
			if len(row) > 1 {
				fact.Title = strings.TrimSuffix(row[0], ":")
			}
			facts = append(facts, fact)
		}
	}
	return facts
}
