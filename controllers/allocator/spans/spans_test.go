// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/allocation/topology"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// reported returns a report of a step on one node, and of one of four replicas on two nodes.
func reported(seconds float64) *profilings.Report {
	return &profilings.Report{Version: 1, Steps: []profilings.Step{
		{Nodes: 1, Replicas: 2, Samples: 8, Seconds: 1 + seconds, ComputeSeconds: 0.1},
		{Nodes: 2, Replicas: 4, Samples: 8, Seconds: seconds, ComputeSeconds: 0.1},
	}}
}

func place(span int, held time.Duration, nodes ...string) Place {
	return Place{Nodes: nodes, Distinct: 2, Span: span, Held: held}
}

// seconds returns the measured times by span.
func seconds(s Seen) map[int][]float64 {
	times := map[int][]float64{}
	for _, o := range s.Measured() {
		times[o.Span] = append(times[o.Span], o.Step)
	}
	return times
}

func TestWhatChangesBetweenTwoReportsWasMeasuredBetweenThem(t *testing.T) {
	t.Parallel()
	rack, racks := []string{"a", "a", "b", "b"}, []string{"a", "a", "c", "c"}
	seen := Seen{}
	for _, report := range []*profilings.Report{reported(1), reported(2), reported(3)} {
		seen = seen.After(report, place(1, time.Minute, rack...))
		expect.Equal(t, "of reports that may be of the placement before", 0, len(seen.Measured()))
	}
	seen = seen.After(reported(4), place(1, 4*time.Minute, rack...))
	expect.Equal(t, "of the first report of the placement", map[int][]float64{}, seconds(seen))
	again := reported(5)
	seen = seen.After(again, place(1, 5*time.Minute, rack...))
	expect.Equal(t, "of the second one", map[int][]float64{1: {5}}, seconds(seen))
	seen = seen.After(again, place(1, 6*time.Minute, rack...))
	seen = seen.After(reported(6), place(1, 7*time.Minute, rack...))
	expect.Equal(t, "of the third one", map[int][]float64{1: {6}}, seconds(seen))

	seen = seen.After(reported(7), place(2, 0, racks...))
	seen = seen.After(reported(8), place(2, 4*time.Minute, racks...))
	expect.Equal(t, "of the first report of another placement", map[int][]float64{1: {6}}, seconds(seen))
	seen = seen.After(reported(9), place(2, 5*time.Minute, racks...))
	expect.Equal(t, "of both placements", map[int][]float64{1: {6}, 2: {9}}, seconds(seen))
}

func TestStepsOfOtherPlacementsHaveNoSpan(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]Place{
		"without a topology": place(0, time.Hour, "a", "a", "b", "b"),
		"of fewer replicas":  place(1, time.Hour, "a", "b"),
		"of more nodes":      {Nodes: []string{"a", "b", "c", "d"}, Distinct: 4, Span: 1, Held: time.Hour},
		"of one node":        {Nodes: []string{"a", "a"}, Distinct: 1, Span: 1, Held: time.Hour},
	} {
		seen := Seen{}
		for second := range 5 {
			seen = seen.After(reported(float64(1+second)), at)
		}
		seen = seen.After(nil, at)
		expect.Equal(t, name, 0, len(seen.Measured()))
	}
}

func TestTheMeasuredStepsAreBounded(t *testing.T) {
	t.Parallel()
	seen, at := Seen{}, place(1, time.Hour, "a", "a", "b", "b")
	for samples := 1; samples <= 2*allocation.MaxObservations; samples++ {
		seen = seen.After(&profilings.Report{Version: 1, Steps: []profilings.Step{{Nodes: 2, Replicas: 4, Samples: samples, Seconds: 1}}}, at)
	}
	expect.Equal(t, "observations", allocation.MaxObservations, len(seen.Measured()))
	expect.Equal(t, "newest", 2*allocation.MaxObservations, seen.Measured()[allocation.MaxObservations-1].Atomic)
}

func TestAPlaceIsThatOfTheElasticReplicas(t *testing.T) {
	t.Parallel()
	tree := topology.New([][]topology.Domain{{{Level: "rack", Name: "1"}}, {{Level: "rack", Name: "1"}}, {{Level: "rack", Name: "2"}}})
	job := &allocation.Job{Elastic: 1, Tasks: []allocation.Task{{Replicas: 1}, {}}, Held: time.Hour}
	places := map[string]int{"a": 0, "b": 1, "c": 2}
	for name, tc := range map[string]struct {
		nodes []string
		want  Place
	}{
		"within a rack": {[]string{"c", "a", "b"}, Place{Nodes: []string{"a", "b"}, Distinct: 2, Span: 1, Held: time.Hour}},
		"across racks":  {[]string{"a", "a", "c"}, Place{Nodes: []string{"a", "c"}, Distinct: 2, Span: 2, Held: time.Hour}},
		"nowhere":       {nil, Place{}},
	} {
		expect.Equal(t, name, tc.want, PlaceOf(job, tc.nodes, tree, places))
	}
	expect.Equal(t, "without a topology", Place{}, PlaceOf(job, []string{"a", "b"}, nil, places))
}
