// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"math"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/model"
)

// member adds a job of a group that never ends.
func (c *cluster) member(truth model.Throughput) *trainer {
	one := c.add(8)
	one.group, one.total, one.truth, one.created = "group", math.Inf(1), truth, c.now
	return one
}

// rounds lets a policy decide about all jobs once a minute.
func (c *cluster) rounds(policy *goodput.Policy, count int) {
	for range count {
		c.apply(policy.Optimize(c.round()))
		c.train(60)
	}
}

// slower returns a throughput whose steps take so many times as long.
func slower(t model.Throughput, times float64) model.Throughput {
	t.AlphaC, t.BetaC, t.AlphaN, t.BetaN, t.AlphaR, t.BetaR = t.AlphaC*times, t.BetaC*times, t.AlphaN*times, t.BetaN*times, t.AlphaR*times, t.BetaR*times
	return t
}

// off returns by which factor at most the observations of the group are wrong for a job.
func (c *cluster) off(truth *model.Throughput) float64 {
	most := 1.0
	for _, o := range c.groups["group"].Observations {
		right := truth.StepTime(model.Config{Nodes: o.Nodes, Replicas: o.Replicas, Atomic: o.Atomic})
		most = max(most, o.Step/right, right/o.Step)
	}
	return most
}

func TestAGroupForgetsWhatAYoungerJobMeasuresOtherwise(t *testing.T) {
	for seed := range uint64(10) {
		for _, times := range []float64{0.3, 0.7, 1.4, 3} {
			c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
			c.addNodes(4, 4, nil)
			before := c.add(1).truth
			c.jobs = nil
			old := c.member(before)
			c.rounds(policy, 15)
			changed := slower(before, times)
			young := c.member(changed)
			young.noise = 0.05
			c.rounds(policy, 12)
			if got := c.off(&changed); got > 1.06 || !c.groups["group"].Since.Equal(young.created) {
				t.Errorf("seed %d, %g times the time: the group is wrong by %.2f, want that of the younger job", seed, times, got)
			}
			c.rounds(policy, 12)
			if got := c.off(&changed); got > 1.06 {
				t.Errorf("seed %d, %g times the time: beside an older job the group is wrong by %.2f", seed, times, got)
			}
			if len(old.steps) == 0 || len(young.steps) == 0 {
				t.Errorf("seed %d: a job has not run", seed)
			}
		}
	}
}

func TestAGroupForgetsNothingByNoise(t *testing.T) {
	for seed := range uint64(10) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		c.addNodes(4, 4, nil)
		truth := c.add(1).truth
		c.jobs = nil
		for number := range 120 {
			if number%15 == 0 {
				c.member(truth).noise = 0.1
			}
			if len(c.jobs) > 3 {
				c.jobs = c.jobs[1:]
			}
			// In one report of ten, all is three times as slow.
			now := slower(truth, 1)
			if c.random.IntN(10) == 0 {
				now = slower(truth, 3)
			}
			for _, one := range c.jobs {
				for i := range one.steps {
					s := &one.steps[i]
					s.Seconds = now.StepTime(model.Config{Nodes: s.Nodes, Replicas: s.Replicas, Atomic: s.Samples})
				}
			}
			c.rounds(policy, 1)
		}
		if group := c.groups["group"]; !group.Since.IsZero() || len(group.Observations) == 0 {
			t.Errorf("seed %d: the group has forgotten at %v, %d observations", seed, group.Since, len(group.Observations))
		}
	}
}

func TestAGroupKeepsWhatAReportContradictsThatStays(t *testing.T) {
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.addNodes(4, 4, nil)
	first := c.member(c.add(1).truth)
	c.jobs = c.jobs[1:]
	c.rounds(policy, 5)
	for i := range first.steps {
		first.steps[i].Seconds *= 2
	}
	reported := c.now
	for range 20 {
		round := c.round()
		round.Jobs[0].ReportedAt = reported
		c.apply(policy.Optimize(round))
		c.now = c.now.Add(time.Minute)
	}
	if !c.groups["group"].Since.IsZero() {
		t.Error("one report makes the group forget")
	}
}
