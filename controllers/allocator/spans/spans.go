// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spans finds out across how many domains of the topology jobs measured the steps that they report. A report does not
// say when a step was measured, but what changes between two reports was measured between them.
package spans

import (
	"slices"
	"time"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/allocation/topology"
)

// settle is how long after a change of its placement a job's report may be of the placement before: di-server stores the last one
// every 75 seconds.
const settle = 3 * time.Minute

// Seen is what was seen of a job. The zero value is that of a job that is seen for the first time.
type Seen struct {
	nodes []string
	// report is the last report. last are its observations if they are of the placement, nil before.
	report *profilings.Report
	last   []model.Observation
	// measured are the observations whose span is known, the newest last.
	measured []model.Observation
}

// Measured returns the observations whose span is known, the newest last.
func (s *Seen) Measured() []model.Observation { return s.measured }

// Place is where the elastic replicas of a job are.
type Place struct {
	// Nodes are their nodes, by rank.
	Nodes []string
	// Distinct is how many nodes these are.
	Distinct int
	// Span is one more than the levels of the topology that they cross; 0 without a topology.
	Span int
	// Held is how long the job has been there.
	Held time.Duration
}

// PlaceOf returns where the elastic replicas of a job are.
func PlaceOf(job *allocation.Job, nodes []string, tree *topology.Tree, places map[string]int) Place {
	elastic, fits := job.ElasticOf(len(nodes))
	if tree == nil || job.Elastic < 0 || !fits {
		return Place{}
	}
	first := 0
	for task := range job.Elastic {
		first += int(job.Tasks[task].Replicas)
	}
	at := Place{Nodes: nodes[first : first+int(elastic)], Held: job.Held}
	var on []int
	for _, node := range at.Nodes {
		if place, exists := places[node]; exists {
			on = append(on, place)
		}
	}
	slices.Sort(on)
	on = slices.Compact(on)
	at.Distinct, at.Span = len(on), tree.Crossed(on)+1
	return at
}

// After returns what was seen of a job once it has a report and a place. The first new report that is of the place for certain is
// what later ones are compared with.
func (s Seen) After(report *profilings.Report, at Place) Seen {
	if s.report == nil || !slices.Equal(s.nodes, at.Nodes) {
		s.nodes, s.report, s.last = slices.Clone(at.Nodes), report, nil
		return s
	}
	if report == nil || report == s.report || at.Span == 0 || at.Distinct < 2 {
		return s
	}
	s.report = report
	if at.Held < settle {
		return s
	}
	observations := report.Observations()
	if s.last != nil {
		s.measured = slices.Clone(s.measured)
		for _, o := range observations {
			if o.Nodes == at.Distinct && o.Replicas == len(at.Nodes) && !slices.Contains(s.last, o) {
				o.Span = at.Span
				s.note(o)
			}
		}
	}
	s.last = observations
	return s
}

// note adds an observation in place of an earlier one of the same step and span. The oldest are forgotten.
func (s *Seen) note(o model.Observation) {
	s.measured = slices.DeleteFunc(s.measured, func(known model.Observation) bool { return known.Span == o.Span && allocation.IsSameStep(&known, &o) })
	s.measured = append(s.measured, o)
	if beyond := len(s.measured) - allocation.MaxObservations; beyond > 0 {
		s.measured = s.measured[beyond:]
	}
}
