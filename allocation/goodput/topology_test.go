// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// alone places a job of exactly so many replicas beside what others have, and returns its nodes.
func (c *cluster) alone(t *testing.T, replicas int32) (*allocation.Round, []string) {
	t.Helper()
	one := c.add(replicas)
	one.min, one.isSilent = replicas, true
	round := c.round()
	answer := goodput.New(goodput.DefaultSettings()).Optimize(round)
	check(t, round, answer)
	return round, answer[types.NamespacedName{Namespace: one.team, Name: one.name}].Nodes
}

// placesOf returns the places of nodes, each once.
func placesOf(round *allocation.Round, nodes []string) []int {
	var places []int
	for at, node := range round.Nodes {
		if slices.Contains(nodes, node.Object.Name) {
			places = append(places, at)
		}
	}
	return places
}

// fewestDomains returns the least counts of domains of all lists of free nodes, by what they hold.
func fewestDomains(round *allocation.Round, free map[int]int32, replicas int32) []int {
	var best []int
	tree := allocation.TreeOf(round.Nodes)
	for set := 1; set < 1<<len(round.Nodes); set++ {
		var nodes []int
		room := int32(0)
		for at := range round.Nodes {
			if set&(1<<at) != 0 {
				nodes, room = append(nodes, at), room+free[at]
			}
		}
		if room < replicas {
			continue
		}
		if counts := tree.Counts(nodes); best == nil || slices.Compare(counts, best) < 0 {
			best = counts
		}
	}
	return best
}

func TestAJobHasNoMoreDomainsThanTheBestOfAllPlacements(t *testing.T) {
	crossing := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 8))
		c := newCluster(seed)
		c.addNodes(2+random.IntN(4), 4, map[string]string{levels[0]: "a"})
		c.addNodes(2+random.IntN(4), 4, map[string]string{levels[0]: "b"})
		c.rack(2 + random.IntN(3))
		free := map[int]int32{}
		for at := range c.nodes {
			if free[at] = 4; random.IntN(3) > 0 {
				continue
			}
			// A job that fills the node stays.
			free[at] = 0
			other := c.add(4)
			other.min, other.isSilent, other.placed, other.runs = 4, true, slices.Repeat([]string{c.nodes[at].Name}, 4), true
		}
		count := int32(0)
		for _, room := range free {
			count += room
		}
		if count < 8 {
			continue
		}
		replicas := 8 + 4*random.Int32N((count-8)/4+1)
		round, nodes := c.alone(t, replicas)
		expect.Equal(t, "replicas", int(replicas), len(nodes))
		want, got := fewestDomains(round, free, replicas), allocation.TreeOf(round.Nodes).Counts(placesOf(round, nodes))
		if got[0] != want[0] || want[0] == 1 && got[1] != want[1] {
			t.Errorf("seed %d: %d replicas are on %v in %v domains, want %v", seed, replicas, nodes, got, want)
		}
		if want[1] > 1 {
			crossing++
		}
	}
	if crossing < 40 {
		t.Errorf("only %d jobs cross racks", crossing)
	}
}

func TestTheRestOfAJobIsNearItsWholeNodes(t *testing.T) {
	c := newCluster(1)
	c.addNodes(4, 4, nil)
	c.rack(2)
	round, nodes := c.alone(t, 6)
	expect.Equal(t, "racks", []int{1, 1}, allocation.TreeOf(round.Nodes).Counts(placesOf(round, nodes)))
}

func TestAJobOfSeveralTasksIsInOneRack(t *testing.T) {
	c := newCluster(2)
	c.addNodes(1, 4, nil)
	c.addNodes(2, 2, nil)
	c.addNodes(1, 4, nil)
	c.rack(2)
	one := c.add(5)
	one.fixed, one.min, one.isSilent = podOf(1, 1), 5, true
	round := c.round()
	answer := goodput.New(goodput.DefaultSettings()).Optimize(round)
	check(t, round, answer)
	nodes := answer[types.NamespacedName{Namespace: one.team, Name: one.name}].Nodes
	expect.Equal(t, "replicas", 6, len(nodes))
	expect.Equal(t, "racks", []int{1, 1}, allocation.TreeOf(round.Nodes).Counts(placesOf(round, nodes)))
}

// truth is a job that computes for long and synchronizes fast within a rack.
var truth = model.Throughput{AlphaC: 0.05, BetaC: 0.004, AlphaN: 0.4, BetaN: 0.0001, AlphaR: 0.01, BetaR: 0.0001, Gamma: 1.2}

// measure lets a job have measured some placements, those of a span of 2 with a network that takes so many times as long.
func measure(job *allocation.Job, times float64, spans ...int) {
	report := &profilings.Report{Version: profilings.Version, Batch: &profilings.Batch{Initial: 4096, Max: 4096, MaxPerReplica: 4096}}
	job.Measured = nil
	add := func(nodes, replicas, span int) {
		at, network := model.Config{Nodes: nodes, Replicas: replicas, Atomic: 4096 / replicas}, truth
		if span == 2 {
			network = truth.Across(times)
		}
		step := profilings.Step{Nodes: nodes, Replicas: replicas, Samples: at.Atomic, Seconds: network.StepTime(at), ComputeSeconds: truth.AlphaC + truth.BetaC*float64(at.Atomic)}
		report.Steps = append(report.Steps, step)
		if span > 0 {
			job.Measured = append(job.Measured, model.Observation{
				Nodes: nodes, Replicas: replicas, Atomic: at.Atomic, Span: span, Step: step.Seconds, Accumulate: step.ComputeSeconds,
			})
		}
	}
	add(1, 1, 0)
	add(1, 4, 0)
	for _, span := range spans {
		add(2, 8, span)
		add(2, 7, span)
	}
	job.Report = report
}

func TestAJobGrowsBeyondARackByWhatItHasMeasuredAcross(t *testing.T) {
	for name, tc := range map[string]struct {
		times float64
		spans []int
		// other has measured both, nil for no other job.
		other []int
		want  int
	}{
		"a network that is as fast":          {1, []int{1, 2}, nil, 16},
		"a slow network":                     {10, []int{1, 2}, nil, 8},
		"a slow network, never tried":        {10, []int{1}, nil, 16},
		"a slow network that others tried":   {10, []int{1}, []int{1, 2}, 8},
		"a span that is not known":           {1, []int{0}, nil, 16},
		"others that have not tried it both": {10, []int{1}, []int{1}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(3)
			c.addNodes(6, 4, nil)
			c.rack(2)
			one := c.add(16)
			if tc.other != nil {
				c.add(8).min = 8
			}
			round := c.round()
			measure(round.Jobs[0], tc.times, tc.spans...)
			if tc.other != nil {
				measure(round.Jobs[1], tc.times, tc.other...)
			}
			answer := goodput.New(goodput.DefaultSettings()).Optimize(round)
			check(t, round, answer)
			nodes := answer[types.NamespacedName{Namespace: one.team, Name: one.name}].Nodes
			expect.Equal(t, "replicas", tc.want, len(nodes))
		})
	}
}

func TestAGroupKeepsWhatItsJobsMeasuredAtEachSpan(t *testing.T) {
	for name, tc := range map[string]struct {
		reports [][]int
		want    map[int]int
	}{
		"a span that becomes known": {[][]int{{0}, {1}, {2}, {0}, {1}}, map[int]int{0: 2, 1: 2, 2: 2}},
		"another span":              {[][]int{{0}, {2}, {2}}, map[int]int{0: 4, 2: 2}},
	} {
		c := newCluster(5)
		c.addNodes(6, 4, nil)
		c.rack(2)
		c.add(16).group = "group"
		policy := goodput.New(goodput.DefaultSettings())
		for _, spans := range tc.reports {
			round := c.round()
			measure(round.Jobs[0], 5, spans...)
			policy.Optimize(round)
		}
		counts := map[int]int{}
		for _, o := range c.groups["group"].Observations {
			counts[o.Span]++
		}
		expect.Equal(t, name+": observations by span", tc.want, counts)
		expect.Equal(t, name+": doubts", 0, len(c.groups["group"].Doubts))
	}
}

func TestAJobThatIsSlowAcrossRacksShrinksToOne(t *testing.T) {
	for times, want := range map[float64]int{1: 8, 10: 4} {
		c := newCluster(6)
		c.addNodes(4, 4, nil)
		c.rack(2)
		for _, node := range []int{0, 2} {
			other := c.add(4)
			other.min, other.isSilent, other.placed, other.runs = 4, true, slices.Repeat([]string{c.nodes[node].Name}, 4), true
		}
		one := c.add(8)
		one.placed = slices.Concat(slices.Repeat([]string{c.nodes[1].Name}, 4), slices.Repeat([]string{c.nodes[3].Name}, 4))
		round := c.round()
		at := slices.IndexFunc(round.Jobs, func(job *allocation.Job) bool { return job.Name.Name == one.name })
		measure(round.Jobs[at], times, 1, 2)
		answer := goodput.New(goodput.DefaultSettings()).Optimize(round)
		check(t, round, answer)
		expect.Equal(t, "replicas", want, len(answer[round.Jobs[at].Name].Nodes))
	}
}

func TestObservationsHaveTheSpanThatTheyWereMeasuredAt(t *testing.T) {
	job := &allocation.Job{}
	measure(job, 2, 1)
	within := job.Measured
	measure(job, 2, 2)
	job.Measured = append(within, job.Measured...)
	spans := func() map[int]int {
		counts := map[int]int{}
		for _, o := range job.Observations() {
			if o.Nodes > 1 {
				counts[o.Span]++
			}
		}
		return counts
	}
	expect.Equal(t, "spans", map[int]int{1: 2, 2: 2}, spans())
	for i := range job.Report.Steps {
		job.Report.Steps[i].Seconds *= 1.01
	}
	expect.Equal(t, "spans of a report that nothing is known of", map[int]int{0: 2, 1: 2, 2: 2}, spans())
}
