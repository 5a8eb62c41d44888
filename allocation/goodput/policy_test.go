// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
)

func TestRoundsStayWithinCapacity(t *testing.T) {
	for seed := range uint64(60) {
		c, policy := randomCluster(seed), goodput.New(goodput.DefaultSettings())
		for number := range 25 {
			if number == 12 {
				c.loseNodes(0.3)
			}
			if number%3 == 0 {
				c.addRandom()
			}
			round := c.round()
			answer := policy.Optimize(round)
			check(t, round, answer)
			c.apply(answer)
			c.train(20 + c.random.IntN(200))
		}
	}
}

// loseNodes removes a share of the nodes. Their ranks have no node.
func (c *cluster) loseNodes(share float64) {
	lost := map[string]bool{}
	c.nodes = slices.DeleteFunc(c.nodes, func(node *corev1.Node) bool {
		if c.random.Float64() < share {
			lost[node.Name] = true
		}
		return lost[node.Name]
	})
	for _, t := range c.jobs {
		t.placed = slices.Clone(t.placed)
		for rank := range t.placed {
			if lost[t.placed[rank]] {
				t.placed[rank] = ""
			}
		}
	}
}

func TestEveryAnswerHasTheUsage(t *testing.T) {
	c, policy := randomCluster(3), goodput.New(goodput.DefaultSettings())
	for range 10 {
		round := c.round()
		answer := policy.Optimize(round)
		for _, job := range round.Jobs {
			placement, had := answer[job.Name], round.Previous[job.Name]
			isMoved := len(placement.Nodes) > 0 && len(had) == 0 || job.Restarts(had, placement.Nodes)
			switch {
			case len(placement.Nodes) > 0 && !placement.Usage.At.Equal(round.Now):
				t.Fatalf("%s: usage is accounted up to %v, want %v", job.Name, placement.Usage.At, round.Now)
			case isMoved && placement.Usage.Restarting != 30:
				t.Fatalf("%s: %g s of a restart are left, want 30", job.Name, placement.Usage.Restarting)
			case isMoved && !job.Usage.At.IsZero() && placement.Usage.Restarts != job.Usage.Restarts+1:
				t.Fatalf("%s: %d restarts after %d", job.Name, placement.Usage.Restarts, job.Usage.Restarts)
			case len(placement.Nodes) == 0 && len(had) == 0 && placement.Usage != job.Usage:
				t.Fatalf("%s: usage %+v of a job that waits, want %+v", job.Name, placement.Usage, job.Usage)
			}
		}
		c.apply(answer)
		c.train(60)
	}
}

func TestAJobThatIsResizedLiveKeepsItsReplicasAndCountsNoRestart(t *testing.T) {
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.addNodes(2, 4, nil)
	live := c.add(8)
	live.isLive, live.total = true, math.Inf(1)
	live.truth.AlphaN, live.truth.BetaN, live.truth.AlphaR, live.truth.BetaR = 0.02, 1e-4, 0.02, 1e-4
	sizes := map[int]bool{}
	for number := range 40 {
		if number == 20 {
			for range 2 {
				c.add(2).total = math.Inf(1)
			}
		}
		had := live.placed
		round := c.round()
		answer := policy.Optimize(round)
		check(t, round, answer)
		c.apply(answer)
		if kept := min(len(had), len(live.placed)); !slices.Equal(had[:kept], live.placed[:kept]) {
			t.Fatalf("round %d: replicas move from %v to %v", number, had, live.placed)
		}
		sizes[len(live.placed)] = true
		c.train(60)
	}
	if !sizes[8] || len(live.placed) == 8 || live.usage.Restarts > 0 || live.usage.Restarting > 0 {
		t.Errorf("the job had %v replicas, now %d, and %+v; want growth to 8, fewer beside other jobs, and no restart", sizes, len(live.placed), live.usage)
	}
}

// settled returns a cluster after some rounds.
func settled(seed uint64, rounds int) *cluster {
	c, policy := randomCluster(seed), goodput.New(goodput.DefaultSettings())
	for range rounds {
		c.apply(policy.Optimize(c.round()))
		c.train(60)
	}
	return c
}

func TestTheOrderOfJobsAndNodesChangesNothing(t *testing.T) {
	for seed := range uint64(20) {
		c := settled(seed, int(seed%5))
		first := goodput.New(goodput.DefaultSettings()).Optimize(c.copied())
		for range 3 {
			round := c.copied()
			c.random.Shuffle(len(round.Jobs), reflect.Swapper(round.Jobs))
			c.random.Shuffle(len(round.Nodes), reflect.Swapper(round.Nodes))
			again := goodput.New(goodput.DefaultSettings()).Optimize(round)
			if !reflect.DeepEqual(first, again) {
				t.Fatalf("seed %d: the order changes\n%v to\n%v", seed, first, again)
			}
		}
	}
}

// copied returns the round with its own groups, as a policy updates them.
func (c *cluster) copied() *allocation.Round {
	round := c.round()
	round.Groups = map[string]*allocation.Group{}
	for name, group := range c.groups {
		one := *group
		one.Observations, one.Doubts = slices.Clone(group.Observations), maps.Clone(group.Doubts)
		round.Groups[name] = &one
	}
	return round
}

func TestWhatAPolicyKeepsChangesNothing(t *testing.T) {
	for seed := range uint64(20) {
		c, policy := randomCluster(seed), goodput.New(goodput.DefaultSettings())
		for range 8 {
			fresh := goodput.New(goodput.DefaultSettings()).Optimize(c.copied())
			answer := policy.Optimize(c.round())
			if !reflect.DeepEqual(fresh, answer) {
				t.Fatalf("seed %d: a new leader decides\n%v, the old one\n%v", seed, fresh, answer)
			}
			c.apply(answer)
			c.train(60)
		}
	}
}

func TestNamesDoNotMatter(t *testing.T) {
	for seed := range uint64(20) {
		c := settled(seed, 4)
		for i, one := range c.jobs {
			one.created = one.created.Add(time.Duration(i) * time.Microsecond)
		}
		first := goodput.New(goodput.DefaultSettings()).Optimize(c.copied())
		names := map[string]string{}
		for i, one := range c.jobs {
			renamed := fmt.Sprintf("other-%d", len(c.jobs)-i)
			names[renamed], one.name = one.name, renamed
		}
		for name, placement := range goodput.New(goodput.DefaultSettings()).Optimize(c.copied()) {
			was := types.NamespacedName{Namespace: name.Namespace, Name: names[name.Name]}
			if !slices.Equal(placement.Nodes, first[was].Nodes) {
				t.Fatalf("seed %d: %s is on %v, and on %v as %s", seed, was, first[was].Nodes, placement.Nodes, name)
			}
		}
	}
}

func TestUnchangedInputChangesNothing(t *testing.T) {
	for seed := range uint64(40) {
		c, policy := settled(seed, 6), goodput.New(goodput.DefaultSettings())
		for range 3 {
			// A change of speed changes what a job weighs, so it takes some rounds to settle.
			c.apply(policy.Optimize(c.round()))
		}
		round := c.round()
		for name, placement := range policy.Optimize(round) {
			if !slices.Equal(placement.Nodes, round.Previous[name]) {
				t.Errorf("seed %d: %s moves from %v to %v although nothing has changed", seed, name, round.Previous[name], placement.Nodes)
			}
		}
	}
}

// counts returns how many replicas each job has.
func counts(answer map[types.NamespacedName]allocation.Placement) map[string]int {
	all := map[string]int{}
	for name, placement := range answer {
		all[name.Name] = len(placement.Nodes)
	}
	return all
}

func TestPrioritiesAreServedInOrder(t *testing.T) {
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.addNodes(1, 4, nil)
	for i := range 6 {
		one := c.add(1)
		one.priority = int32(i % 2)
	}
	got := counts(policy.Optimize(c.round()))
	if got["job-001"]+got["job-003"]+got["job-005"] != 3 || got["job-000"]+got["job-002"]+got["job-004"] != 1 {
		t.Errorf("replicas %v: jobs 1, 3 and 5 are of the higher priority", got)
	}
}

func TestAJobOfManyReplicasDoesNotWaitForEver(t *testing.T) {
	c, policy := newCluster(2), goodput.New(goodput.DefaultSettings())
	c.addNodes(2, 4, nil)
	for range 8 {
		small := c.add(1)
		small.total = math.Inf(1)
	}
	c.apply(policy.Optimize(c.round()))
	c.train(60)
	large := c.add(8)
	large.min, large.created = 4, c.now.Add(-time.Hour)
	round := c.round()
	answer := policy.Optimize(round)
	check(t, round, answer)
	if got := counts(answer)[large.name]; got != 4 {
		t.Errorf("after an hour the job has %d replicas, want 4: %v", got, counts(answer))
	}
}

func TestAJobOfSeveralNodesStaysInOneDomain(t *testing.T) {
	c, policy := newCluster(4), goodput.New(goodput.DefaultSettings())
	c.addNodes(3, 4, map[string]string{"topology.kubernetes.io/zone": "a"})
	c.addNodes(2, 4, map[string]string{"topology.kubernetes.io/zone": "b"})
	other := c.add(4)
	other.min, other.isSilent = 4, true
	one := c.add(8)
	one.min, one.isSilent = 8, true
	round := c.round()
	answer := policy.Optimize(round)
	check(t, round, answer)
	zones := map[string]bool{}
	for _, name := range answer[types.NamespacedName{Namespace: "test", Name: one.name}].Nodes {
		i := slices.IndexFunc(c.nodes, func(node *corev1.Node) bool { return node.Name == name })
		zones[c.nodes[i].Labels["topology.kubernetes.io/zone"]] = true
	}
	if !maps.Equal(zones, map[string]bool{"b": true}) {
		t.Errorf("8 replicas are in the zones %v, want b only: it is the fullest that holds them", zones)
	}
}

func TestANewJobGetsTwiceWhatItHasMeasured(t *testing.T) {
	c, policy := newCluster(5), goodput.New(goodput.DefaultSettings())
	c.addNodes(4, 4, nil)
	one := c.add(16)
	one.truth.AlphaN, one.truth.BetaN, one.truth.AlphaR, one.truth.BetaR = 0.001, 0.0001, 0.001, 0.0001
	one.total = math.Inf(1)
	for _, want := range []int{1, 2, 4, 8, 16, 16} {
		answer := policy.Optimize(c.round())
		if got := counts(answer)[one.name]; got != want {
			t.Fatalf("%d replicas, want %d", got, want)
		}
		c.apply(answer)
		c.train(600)
	}
}

func TestASilentJobStartsSmallAndDoublesSlowly(t *testing.T) {
	c, policy := newCluster(6), goodput.New(goodput.DefaultSettings())
	c.addNodes(1, 8, nil)
	one := c.add(8)
	one.isSilent = true
	round := c.round()
	answer := policy.Optimize(round)
	if got := counts(answer)[one.name]; got != 1 {
		t.Fatalf("%d replicas, want 1", got)
	}
	c.apply(answer)
	c.train(900)
	round = c.round()
	if got := counts(policy.Optimize(round))[one.name]; got != 1 {
		t.Errorf("%d replicas, want 1 as it has just been placed", got)
	}
	round.Jobs[0].Held = 15 * time.Minute
	if got := counts(policy.Optimize(round))[one.name]; got != 2 {
		t.Errorf("%d replicas after a quarter of an hour, want 2", got)
	}
}
