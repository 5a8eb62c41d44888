// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
)

func TestAJobThatWaitsForLongReservesTheEmptiestNodes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waiting time.Duration
		size    int32
		want    []string
	}{
		"it needs the emptiest node":  {10 * time.Minute, 4, []string{"x"}},
		"it needs the two emptiest":   {10 * time.Minute, 8, nil},
		"it needs all nodes":          {time.Hour, 12, nil},
		"it has not waited for long":  {10*time.Minute - 1, 8, []string{"x", "y", "y"}},
		"the nodes can never hold it": {time.Hour, 13, []string{"x", "y", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("x", 4, 0), node("y", 4, 0), node("z", 4, 0)})
			running := collectors(snapshot, "running", 9, 9, pod("1", 0))
			big, small := collectors(snapshot, "big", tc.size, tc.size, pod("1", 0)), collectors(snapshot, "small", 1, 3, pod("1", 0))
			big.Created, small.Created, big.Waiting = time.Unix(1, 0), time.Unix(2, 0), tc.waiting
			got := Fit{}.Optimize(&allocation.Round{
				Jobs: []*allocation.Job{small, big, running}, Nodes: snapshot.Nodes,
				Previous: map[types.NamespacedName][]string{running.Name: {"x", "x", "x", "y", "y", "z", "z", "z", "z"}},
			})
			nodes := slices.Sorted(slices.Values(got[small.Name].Nodes))
			if diff := cmp.Diff(tc.want, nodes); diff != "" {
				t.Errorf("the small job gets (-want +got):\n%s\n%s", diff, got[small.Name].Message)
			}
		})
	}
}

// stream is a cluster that small jobs fill at any time.
type stream struct {
	random        *rand.Rand
	snapshot      *allocation.Snapshot
	waiting, runs []*allocation.Job
	ends, since   map[types.NamespacedName]int
	placed        map[types.NamespacedName][]string
}

// longest is how many minutes a small job runs at most.
const longest = 20

// submit adds a job that waits.
func (s *stream) submit(job *allocation.Job, minute int) {
	job.Created, s.since[job.Name] = time.Unix(int64(minute), 0), minute
	s.waiting = append(s.waiting, job)
}

// pass ends jobs, submits others, and decides a round.
func (s *stream) pass(minute int) {
	s.runs = slices.DeleteFunc(s.runs, func(job *allocation.Job) bool { return s.ends[job.Name] <= minute })
	for i := len(s.waiting); i < 15; i++ {
		s.submit(collectors(s.snapshot, fmt.Sprintf("small-%d-%d", minute, i), 1, int32(1+s.random.IntN(4)), pod("1", 0)), minute)
	}
	for _, job := range s.waiting {
		job.Waiting = time.Duration(minute-s.since[job.Name]) * time.Minute
	}
	placements := Fit{GrowAfter: time.Hour}.Optimize(&allocation.Round{Jobs: slices.Concat(s.runs, s.waiting), Nodes: s.snapshot.Nodes, Previous: s.placed})
	s.waiting = slices.DeleteFunc(s.waiting, func(job *allocation.Job) bool {
		nodes := placements[job.Name].Nodes
		if len(nodes) == 0 {
			return false
		}
		s.runs, s.placed[job.Name], s.ends[job.Name] = append(s.runs, job), nodes, minute+1+s.random.IntN(longest)
		return true
	})
}

func TestAStreamOfSmallJobsDoesNotStarveABigOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		var objects []*corev1.Node
		for i := range 8 {
			objects = append(objects, node(fmt.Sprint("node-", i), 8, 0))
		}
		s := &stream{
			random: rand.New(rand.NewPCG(seed, 9)), snapshot: allocation.NewSnapshot(objects),
			ends: map[types.NamespacedName]int{}, since: map[types.NamespacedName]int{}, placed: map[types.NamespacedName][]string{},
		}
		for minute := range 20 {
			s.pass(minute)
		}
		big := collectors(s.snapshot, "big", 3+int32(s.random.IntN(3)), 5, pod("8", 0))
		s.submit(big, 20)
		minute := 20
		for ; s.placed[big.Name] == nil && minute < 500; minute++ {
			s.pass(minute)
		}
		// It may change its reservation for emptier nodes, and then waits for the jobs there.
		if waited := minute - 20; waited > 10+2*longest {
			t.Errorf("seed %d: the big job of %d nodes waited for %d minutes", seed, big.Min, waited)
		}
	}
}

func TestGrowthWaitsForAGainAndLongerAfterEachRestart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, wanted int
		held           time.Duration
		restarts       int
		want           int
	}{
		"a gain of less than a fifth": {10, 20, time.Hour, 0, 10},
		"a gain of a fifth":           {9, 20, time.Hour, 0, 11},
		"all that is desired":         {10, 11, time.Hour, 0, 11},
		"too soon":                    {5, 11, 4 * time.Minute, 0, 5},
		"after the hold time":         {5, 11, 5 * time.Minute, 0, 11},
		"too soon after two restarts": {5, 11, 19 * time.Minute, 2, 5},
		"later after two restarts":    {5, 11, 20 * time.Minute, 2, 11},
		"an hour is the most":         {5, 11, time.Hour, 1 << 40, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 11, 0)})
			job := collectors(snapshot, "job", 1, int32(tc.wanted), pod("1", 0))
			job.Held, job.Usage.Restarts = tc.held, tc.restarts
			previous := map[types.NamespacedName][]string{job.Name: slices.Repeat([]string{"a"}, tc.before)}
			got := Fit{GrowAfter: 5 * time.Minute}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: previous})[job.Name]
			if len(got.Nodes) != tc.want {
				t.Errorf("it has %d replicas, want %d", len(got.Nodes), tc.want)
			}
		})
	}
}
