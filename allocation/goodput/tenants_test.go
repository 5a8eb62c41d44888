// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/shares"
)

// threeToOne are the tenants of most tests.
func threeToOne() *shares.Tenants {
	return shares.New([]shares.Tenant{{Name: "a", Weight: 3}, {Name: "b", Weight: 1}})
}

// addFor submits a job of a tenant that never ends.
func (c *cluster) addFor(team string, most int32) *trainer {
	t := c.add(most)
	t.team, t.total = team, math.Inf(1)
	return t
}

// held returns the GPUs of each tenant.
func (c *cluster) held() map[string]int {
	held := map[string]int{}
	for _, t := range c.jobs {
		held[t.team] += len(t.placed)
	}
	return held
}

// step asks the policy, checks the answer, and lets the jobs train.
func (c *cluster) step(t *testing.T, policy *goodput.Policy, seconds int) {
	t.Helper()
	round := c.round()
	answer := policy.Optimize(round)
	check(t, round, answer)
	c.apply(answer)
	c.train(seconds)
}

func TestTwoTenantsThatWantEverythingShareAnHourByWeight(t *testing.T) {
	for seed := range uint64(10) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		c.tenants = threeToOne()
		c.addNodes(4, 4, nil)
		for range 6 {
			c.addFor("a", 16)
			c.addFor("b", 16)
		}
		sums := map[string]int{}
		for range 60 {
			c.step(t, policy, 60)
			for team, gpus := range c.held() {
				sums[team] += gpus
			}
		}
		// New jobs start with one GPU each, and there are 12.
		if ratio := float64(sums["a"]) / float64(sums["b"]); math.Abs(ratio/3-1) > 0.05 || sums["a"]+sums["b"] < 60*16-4 {
			t.Errorf("seed %d: GPU minutes %v, that is %.2f to 1", seed, sums, ratio)
		}
	}
}

func TestAnIdleShareIsLentAndGivenBackByShrinkingFirst(t *testing.T) {
	for seed := range uint64(20) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		c.tenants = threeToOne()
		c.addNodes(4, 4, nil)
		var borrowers []*trainer
		for range 4 {
			borrowers = append(borrowers, c.addFor("b", 4))
		}
		for range 20 {
			c.step(t, policy, 60)
		}
		if held := c.held(); held["b"] != 16 {
			t.Fatalf("seed %d: alone, b has %v of 16 GPUs", seed, held)
		}
		for range 4 {
			c.addFor("a", 4)
		}
		for range 20 {
			c.step(t, policy, 60)
			for _, one := range borrowers {
				if len(one.placed) == 0 {
					t.Fatalf("seed %d: %s stops though its tenant has as many GPUs as jobs: %v", seed, one.name, c.held())
				}
			}
		}
		if held := c.held(); held["a"] != 12 || held["b"] != 4 {
			t.Errorf("seed %d: GPUs %v, want 12 and 4", seed, held)
		}
	}
}

func TestBorrowersStopWhereTheirLeastReplicasAreMoreThanTheirShare(t *testing.T) {
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.tenants = threeToOne()
	c.addNodes(4, 4, nil)
	for range 16 {
		c.addFor("b", 1)
	}
	c.step(t, policy, 60)
	for range 20 {
		c.addFor("a", 1)
	}
	for range 5 {
		c.step(t, policy, 60)
		if held := c.held(); held["a"] != 12 || held["b"] != 4 {
			t.Fatalf("GPUs %v, want 12 and 4", held)
		}
	}
}

func TestPriorityOrdersTheJobsOfATenantOnly(t *testing.T) {
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.tenants = threeToOne()
	c.addNodes(1, 4, nil)
	for i := range 8 {
		one := c.addFor([]string{"a", "b"}[i%2], 1)
		one.priority = map[bool]int32{true: 1}[i >= 6 || i == 1]
	}
	c.step(t, policy, 60)
	held := c.held()
	if held["a"] != 3 || held["b"] != 1 {
		t.Fatalf("GPUs %v: a has three quarters, also beside jobs of b of a higher priority", held)
	}
	if len(c.jobs[6].placed) == 0 || len(c.jobs[1].placed)+len(c.jobs[7].placed) == 0 {
		t.Error("jobs 6, and 1 or 7, are first in their tenants")
	}
}

// teams spreads the jobs of a cluster over some tenants, two with a weight.
func (c *cluster) teams() {
	c.tenants = shares.New([]shares.Tenant{{Name: "a", Weight: 3}, {Name: "b", Namespaces: []string{"b-1", "b-2"}, Weight: 2}})
	for _, one := range c.jobs {
		if one.team == "test" {
			one.team = []string{"a", "b-1", "b-2", "c"}[c.random.IntN(4)]
		}
	}
}

// TestNoJobOfATenantWaitsThatWouldFit checks 1,000 rounds of clusters whose jobs have tenants.
func TestNoJobOfATenantWaitsThatWouldFit(t *testing.T) {
	for seed := range uint64(50) {
		c := clusterOfTypes(seed + 100)
		c.teams()
		c.checkIdle(t, seed)
	}
}

func TestRoundsOfTenantsStayWithinCapacity(t *testing.T) {
	for seed := range uint64(40) {
		c, policy := randomCluster(seed), goodput.New(goodput.DefaultSettings())
		for number := range 25 {
			if number%3 == 0 {
				c.addRandom()
			}
			c.teams()
			c.step(t, policy, 20+c.random.IntN(200))
		}
	}
}

func TestEachTenantHasItsEntitlement(t *testing.T) {
	for seed := range uint64(60) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		weights := map[string]int{}
		var named []shares.Tenant
		for i := range 2 + c.random.IntN(4) {
			name := fmt.Sprintf("team-%d", i)
			weights[name] = 1 + c.random.IntN(4)
			named = append(named, shares.Tenant{Name: name, Weight: int32(weights[name])})
		}
		c.tenants = shares.New(named)
		c.addNodes(2+c.random.IntN(5), 4, nil)
		for range 30 {
			if c.random.IntN(2) == 0 {
				c.addFor(named[c.random.IntN(len(named))].Name, 1).total = 1e6
			}
			round := c.round()
			c.apply(policy.Optimize(round))
			c.checkEntitlements(t, seed, weights)
			c.train(60)
		}
	}
}

// checkEntitlements checks the tenants of jobs that want one GPU each, so that nothing is indivisible but a GPU.
func (c *cluster) checkEntitlements(t *testing.T, seed uint64, weights map[string]int) {
	t.Helper()
	wants, sum, held, capacity := map[string]int{}, 0, c.held(), 4*len(c.nodes)
	for _, one := range c.jobs {
		wants[one.team]++
	}
	for team := range wants {
		sum += weights[team]
	}
	all := 0
	for team, count := range wants {
		all += held[team]
		if entitled := capacity * weights[team] / sum; held[team] < min(count, entitled) {
			t.Errorf("seed %d: %s has %d GPUs, wants %d, and is entitled to %d: %v of %v", seed, team, held[team], count, entitled, held, weights)
		}
	}
	if all != min(capacity, len(c.jobs)) {
		t.Errorf("seed %d: %d of %d GPUs are used by %d jobs", seed, all, capacity, len(c.jobs))
	}
}

// TestNoJobWaitsWhileItsTenantHasLessThanItsEntitlement plays elastic jobs within a node. One that waits could use any GPU.
func TestNoJobWaitsWhileItsTenantHasLessThanItsEntitlement(t *testing.T) {
	for seed := range uint64(60) {
		c, policy, weights := newCluster(seed), goodput.New(goodput.DefaultSettings()), map[string]int{"a": 3, "b": 2, "c": 1}
		c.tenants = shares.New([]shares.Tenant{{Name: "a", Weight: 3}, {Name: "b", Weight: 2}})
		c.addNodes(3+c.random.IntN(6), 4, nil)
		for number := range 40 {
			if c.random.IntN(2) == 0 {
				one := c.addFor([]string{"a", "b", "c"}[c.random.IntN(3)], int32(1+c.random.IntN(4)))
				one.total, one.priority, one.isLive = 1e6*(1+5*c.random.Float64()), int32(c.random.IntN(2)), c.random.IntN(3) == 0
			}
			round := c.round()
			answer := policy.Optimize(round)
			check(t, round, answer)
			c.apply(answer)
			c.checkWaits(t, fmt.Sprintf("seed %d, round %d", seed, number), weights)
			c.train(60)
		}
	}
}

func (c *cluster) checkWaits(t *testing.T, where string, weights map[string]int) {
	t.Helper()
	held, waits, sum, free := c.held(), map[string]bool{}, 0, 4*len(c.nodes)
	for _, one := range c.jobs {
		free -= len(one.placed)
		waits[one.team] = waits[one.team] || len(one.placed) == 0
	}
	for team := range waits {
		sum += weights[team]
	}
	for team, isWaiting := range waits {
		if entitled := 4 * len(c.nodes) * weights[team] / sum; isWaiting && (held[team] < entitled || free > 0) {
			t.Errorf("%s: a job of %s waits, which holds %d of its %d GPUs, and %d are idle: %v", where, team, held[team], entitled, free, held)
		}
	}
}

func TestTenantsSettleWhileNothingChanges(t *testing.T) {
	for seed := range uint64(40) {
		c, policy := settled(seed, 0), goodput.New(goodput.DefaultSettings())
		c.teams()
		for range 6 {
			c.step(t, policy, 60)
		}
		for range 3 {
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

func TestOneTenantDecidesAsNone(t *testing.T) {
	for seed := range uint64(20) {
		c, policy := randomCluster(seed), goodput.New(goodput.DefaultSettings())
		for range 8 {
			answers := make([]map[types.NamespacedName]allocation.Placement, 2)
			for i, tenants := range []*shares.Tenants{nil, threeToOne()} {
				c.tenants = tenants
				answers[i] = goodput.New(goodput.DefaultSettings()).Optimize(c.copied())
			}
			if !reflect.DeepEqual(answers[0], answers[1]) {
				t.Fatalf("seed %d: without tenants\n%v, and with one\n%v", seed, answers[0], answers[1])
			}
			c.apply(policy.Optimize(c.round()))
			c.train(60)
		}
	}
}

// TestWhatATenantCannotUseGoesToRunningJobsOfOthers has a tenant whose only job needs more than its share.
func TestWhatATenantCannotUseGoesToRunningJobsOfOthers(t *testing.T) {
	for seed := range uint64(10) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		c.tenants = shares.New([]shares.Tenant{{Name: "a"}, {Name: "b"}})
		c.addNodes(2, 4, nil)
		grows := c.addFor("a", 8)
		grows.truth.AlphaN, grows.truth.BetaN, grows.truth.AlphaR, grows.truth.BetaR = 0.001, 1e-5, 0.001, 1e-5
		for range 30 {
			c.step(t, policy, 60)
		}
		// The job that waits must not have idle nodes when it comes.
		c.addFor("b", 8).min = 8
		for range 15 {
			c.step(t, policy, 60)
			if held := c.held(); held["a"] != 8 {
				t.Fatalf("seed %d: GPUs %v: b cannot use its 4", seed, held)
			}
		}
	}
}

func TestTypesOfGPUsCountTogether(t *testing.T) {
	for seed := range uint64(10) {
		c, policy := newCluster(seed), goodput.New(goodput.DefaultSettings())
		c.tenants = shares.New([]shares.Tenant{{Name: "a"}, {Name: "b"}})
		c.mixed(2, 4, "slow")
		c.mixed(2, 4, "fast")
		pinned := podOf(1, 1)
		pinned.NodeSelector = map[string]string{deviceKey: []string{"slow", "fast"}[seed%2]}
		for range 20 {
			c.addFor("a", 1).elastic = pinned
			c.addFor("b", 1)
		}
		for range 5 {
			c.step(t, policy, 60)
			if held := c.held(); held["a"] != 8 || held["b"] != 8 {
				t.Fatalf("seed %d: GPUs %v, want 8 each: a can use one type only", seed, held)
			}
		}
	}
}

func TestMoreTenantsThanGPUsTakeTurns(t *testing.T) {
	c, policy := newCluster(1), goodput.New(goodput.DefaultSettings())
	c.tenants = threeToOne()
	c.addNodes(1, 4, nil)
	for i := range 8 {
		// A job that reports how much it has to do may wait for half of that.
		c.addFor(fmt.Sprintf("team-%d", i), 1).isSilent = true
	}
	minutes := map[string]int{}
	for range 6 * 60 {
		c.step(t, policy, 60)
		for team, gpus := range c.held() {
			minutes[team] += gpus
		}
	}
	for team, had := range minutes {
		// Each is entitled to half of a GPU, 180 minutes.
		if had < 90 {
			t.Errorf("%s had a GPU for %d minutes of 360: %v", team, had, minutes)
		}
	}
}
