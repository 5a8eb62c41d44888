// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// shared is a cluster whose tenants submit jobs of one GPU for each replica.
type shared struct {
	nodes   []*corev1.Node
	tenants *shares.Tenants
	jobs    []*tenantJob
	now     time.Time
	// submitted counts the jobs.
	submitted int
}

// tenantJob is a job of a tenant.
type tenantJob struct {
	name        types.NamespacedName
	min, wanted int32
	priority    int32
	created     time.Time
	placed      []string
	since       time.Time
}

func newShared(nodes int, tenants ...shares.Tenant) *shared {
	s := &shared{tenants: shares.New(tenants), now: time.Unix(1e6, 0)}
	for i := range nodes {
		s.nodes = append(s.nodes, node(fmt.Sprintf("node-%d", i), 64, 4))
	}
	return s
}

func (s *shared) submit(tenant string, least, wanted int32) *tenantJob {
	name := types.NamespacedName{Namespace: tenant, Name: fmt.Sprintf("job-%d", s.submitted)}
	s.submitted++
	job := &tenantJob{name: name, min: least, wanted: wanted, created: s.now, since: s.now}
	s.jobs = append(s.jobs, job)
	return job
}

// step runs a round, a minute after the last one.
func (s *shared) step(t *testing.T) map[types.NamespacedName]allocation.Placement {
	t.Helper()
	s.now = s.now.Add(time.Minute)
	snapshot := allocation.NewSnapshot(s.nodes)
	round := &allocation.Round{Now: s.now, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{}, Tenants: s.tenants}
	spec := pod("1", 1)
	for _, each := range s.jobs {
		job := collectors(snapshot, each.name.Name, each.min, each.wanted, spec)
		job.Name, job.Priority, job.Created, job.Held = each.name, each.priority, each.created, s.now.Sub(each.since)
		round.Jobs = append(round.Jobs, job)
		if len(each.placed) > 0 {
			round.Previous[job.Name] = each.placed
		} else {
			job.Waiting = s.now.Sub(each.since)
		}
	}
	answer, board := Fit{GrowAfter: 5 * time.Minute, ReserveAfter: time.Hour}.Optimize(round), allocation.NewBoard(snapshot.Nodes)
	for i, each := range s.jobs {
		placed := answer[each.name].Nodes
		if count := int32(len(placed)); count > 0 && (count < each.min || count > each.wanted) {
			t.Fatalf("%v has %d replicas of %d to %d", each.name, count, each.min, each.wanted)
		}
		board.Hold(round.Jobs[i], placed)
		if !slices.Equal(each.placed, placed) {
			each.placed, each.since = placed, s.now
		}
	}
	if over := board.Overcommitted(); over != "" {
		t.Fatalf("over capacity: %s", over)
	}
	return answer
}

func (s *shared) held() map[string]int {
	held := map[string]int{}
	for _, job := range s.jobs {
		held[job.name.Namespace] += len(job.placed)
	}
	return held
}

func TestALentShareIsGivenBackByShrinkingFirst(t *testing.T) {
	t.Parallel()
	s := newShared(4, shares.Tenant{Name: "a", Weight: 3})
	borrowers := []*tenantJob{s.submit("b", 1, 8), s.submit("b", 2, 8)}
	s.step(t)
	expect.Equal(t, "GPUs while b is alone", map[string]int{"b": 16}, s.held())
	s.submit("a", 1, 16)
	for range 10 {
		s.step(t)
		if slices.ContainsFunc(borrowers, func(job *tenantJob) bool { return len(job.placed) == 0 }) {
			t.Fatalf("a borrower stops though all may keep their least replicas: %v", s.held())
		}
	}
	expect.Equal(t, "GPUs of both", map[string]int{"a": 12, "b": 4}, s.held())
}

func TestTheYoungestBorrowerStopsWhereTheLeastReplicasAreTooMany(t *testing.T) {
	t.Parallel()
	s := newShared(4, shares.Tenant{Name: "a", Weight: 3})
	for range 4 {
		s.submit("b", 4, 4)
		s.step(t)
	}
	lender := s.submit("a", 12, 12)
	s.step(t)
	expect.Equal(t, "GPUs of both", map[string]int{"a": 12, "b": 4}, s.held())
	if len(s.jobs[0].placed) != 4 || len(lender.placed) != 12 {
		t.Errorf("the oldest borrower has %d GPUs, and the lender %d", len(s.jobs[0].placed), len(lender.placed))
	}
}

func TestPrioritiesPreemptJobsOfTheirTenantOnly(t *testing.T) {
	t.Parallel()
	s := newShared(1, shares.Tenant{Name: "a", Weight: 1}, shares.Tenant{Name: "b", Weight: 1})
	s.submit("a", 2, 2)
	s.submit("b", 2, 2)
	s.step(t)
	s.submit("b", 2, 2).priority = 1
	s.step(t)
	var got []int
	for _, job := range s.jobs {
		got = append(got, len(job.placed))
	}
	expect.Equal(t, "GPUs of the jobs", []int{2, 0, 2}, got)
}

func TestAJobAtItsShareSaysWhatItWants(t *testing.T) {
	t.Parallel()
	s := newShared(1, shares.Tenant{Name: "a", Weight: 1}, shares.Tenant{Name: "b", Weight: 1})
	one := s.submit("a", 1, 4)
	s.submit("b", 1, 4)
	got := s.step(t)[one.name]
	expect.Equal(t, "message", "2 replicas on 1 node; 4 of task collector are desired", got.Message)
	expect.Equal(t, "reason", allocation.ReasonPartiallyPlaced, got.Reason)
}

// TestEachTenantHasItsShareInRandomRounds plays jobs that come and go, with tenants of random weights.
func TestEachTenantHasItsShareInRandomRounds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 5))
		weights, names := map[string]int{}, []string{"a", "b", "c", "d"}[:2+random.IntN(3)]
		var tenants []shares.Tenant
		for _, name := range names {
			weights[name] = 1 + random.IntN(4)
			tenants = append(tenants, shares.Tenant{Name: name, Weight: int32(weights[name])})
		}
		s := newShared(2+random.IntN(5), tenants...)
		for range 40 {
			if random.IntN(2) == 0 {
				s.submit(names[random.IntN(len(names))], 1, 1)
			}
			if random.IntN(5) == 0 && len(s.jobs) > 0 {
				at := random.IntN(len(s.jobs))
				s.jobs = slices.Delete(s.jobs, at, at+1)
			}
			s.step(t)
			s.checkShares(t, seed, weights)
		}
		before := s.held()
		s.step(t)
		expect.Equal(t, "GPUs when nothing changes", before, s.held())
	}
}

// checkShares checks the tenants of jobs that want one GPU each, so that nothing is indivisible but a GPU.
func (s *shared) checkShares(t *testing.T, seed uint64, weights map[string]int) {
	t.Helper()
	wants, sum, held, capacity, all := map[string]int{}, 0, s.held(), 4*len(s.nodes), 0
	for _, job := range s.jobs {
		wants[job.name.Namespace]++
	}
	for tenant := range wants {
		sum += weights[tenant]
		all += held[tenant]
	}
	for tenant, count := range wants {
		if entitled := capacity * weights[tenant] / sum; held[tenant] < min(count, entitled) {
			t.Errorf("seed %d: %s has %d GPUs, wants %d, and is entitled to %d: %v of %v", seed, tenant, held[tenant], count, entitled, held, weights)
		}
	}
	if all != min(capacity, len(s.jobs)) {
		t.Errorf("seed %d: %d of %d GPUs are used by %d jobs", seed, all, capacity, len(s.jobs))
	}
}

// TestNoJobWaitsForATenantThatBorrows plays elastic jobs of several sizes and priorities. Pods are of one GPU, so nothing is
// lost between nodes.
func TestNoJobWaitsForATenantThatBorrows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		s := newShared(2+random.IntN(4), shares.Tenant{Name: "a", Weight: 3}, shares.Tenant{Name: "b", Weight: 2}, shares.Tenant{Name: "c"})
		weights := map[string]int{"a": 3, "b": 2, "c": 1}
		for round := range 40 {
			if random.IntN(2) == 0 {
				least := int32(1 + random.IntN(4))
				s.submit([]string{"a", "b", "c"}[random.IntN(3)], least, least+int32(random.IntN(8))).priority = int32(random.IntN(2))
			}
			if random.IntN(5) == 0 && len(s.jobs) > 0 {
				at := random.IntN(len(s.jobs))
				s.jobs = slices.Delete(s.jobs, at, at+1)
			}
			s.step(t)
			s.checkWaits(t, fmt.Sprintf("seed %d, round %d", seed, round), weights)
		}
	}
}

// checkWaits checks that no job waits that idle GPUs hold, or what its tenant is entitled to beyond what it has.
func (s *shared) checkWaits(t *testing.T, where string, weights map[string]int) {
	t.Helper()
	held, wanting, free := s.held(), map[string]bool{}, 4*len(s.nodes)
	for _, job := range s.jobs {
		wanting[job.name.Namespace] = true
		free -= len(job.placed)
	}
	sum := 0
	for tenant := range wanting {
		sum += weights[tenant]
	}
	for _, job := range s.jobs {
		tenant := job.name.Namespace
		left := 4*len(s.nodes)*weights[tenant]/sum - held[tenant]
		if len(job.placed) == 0 && (int(job.min) <= free || int(job.min) <= left) {
			t.Errorf("%s: %v waits for %d GPUs: %d are idle, and %s is entitled to %d more: %v", where, job.name, job.min, free, tenant, left, held)
		}
	}
}

func TestOneTenantFitsAsNone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 6))
		with, without := newShared(3, shares.Tenant{Name: "a", Weight: 3}), newShared(3)
		for range 30 {
			if random.IntN(2) == 0 {
				least := int32(1 + random.IntN(3))
				wanted := least + int32(random.IntN(6))
				with.submit("a", least, wanted)
				without.submit("a", least, wanted)
			}
			if random.IntN(4) == 0 && len(with.jobs) > 0 {
				at := random.IntN(len(with.jobs))
				with.jobs, without.jobs = slices.Delete(with.jobs, at, at+1), slices.Delete(without.jobs, at, at+1)
			}
			expect.MustEqual(t, "placements of the only tenant", without.step(t), with.step(t))
		}
	}
}
