// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobWhoseRangeChangesKeepsItsNodes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		least, most    int32
		previous, want []string
	}{
		"as it is":                   {1, 3, []string{"b", "a", "b", "c"}, []string{"b", "a", "b", "c"}},
		"smaller":                    {1, 1, []string{"b", "a", "b", "c"}, []string{"b", "a", "c"}},
		"bigger":                     {4, 5, []string{"b", "a", "b", "c"}, []string{"b", "a", "b", "a", "a", "c"}},
		"bigger than the capacity":   {11, 12, []string{"b", "a", "b", "c"}, []string{"b", "a", "b", "c"}},
		"of an impossible size":      {1, 2, []string{"b"}, []string{"a", "a", "a", "a"}},
		"with a rank without a node": {1, 3, []string{"b", "", "b", "c"}, []string{"b", "b", "b", "c"}},
		"with a node that is gone":   {2, 2, []string{"b", "gone", "b", "c"}, []string{"b", "b", "b", "c"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 4, 0), node("c", 4, 0)})
			one := snapshot.RequirementsOf(pod("1", 0))
			job := &allocation.Job{
				Name: types.NamespacedName{Name: "job"}, Elastic: 1, Min: tc.least, Wanted: tc.most,
				Tasks: []allocation.Task{{Name: "learner", Replicas: 1, Pod: one}, {Name: "collector", Pod: one}, {Name: "evaluator", Replicas: 1, Pod: one}},
			}
			before := slices.Clone(tc.previous)
			got := Fit{GrowAfter: time.Hour}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{job.Name: tc.previous}})
			expect.Equal(t, "nodes", tc.want, got[job.Name].Nodes)
			if diff := cmp.Diff(before, tc.previous); diff != "" {
				t.Errorf("the input has changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestEndedRanksNeedNoCapacity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ended map[int]bool
		want  []string
	}{
		"ended": {map[int]bool{0: true}, []string{"a", "b"}}, "not ended": {nil, []string{"b", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 1, 0), node("b", 4, 0)})
			foreign := &corev1.Pod{Spec: *pod("1", 0)}
			foreign.Spec.NodeName = "a"
			snapshot.Occupy(foreign)
			job := collectors(snapshot, "job", 1, 2, pod("1", 0))
			job.Ended = tc.ended
			got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{job.Name: {"a", "b"}}})
			expect.Equal(t, "nodes", tc.want, got[job.Name].Nodes)
		})
	}
}

func TestEndedRanksEvictNoRunningJob(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 4, 0)})
	foreign := &corev1.Pod{Spec: *pod("1", 0)}
	foreign.Spec.NodeName = "a"
	snapshot.Occupy(foreign)
	first, second := collectors(snapshot, "first", 2, 2, pod("1", 0)), collectors(snapshot, "second", 2, 2, pod("1", 0))
	first.Ended = map[int]bool{1: true}
	previous := map[types.NamespacedName][]string{first.Name: {"a", "a"}, second.Name: {"a", "a"}}
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{first, second}, Nodes: snapshot.Nodes, Previous: previous})
	for _, job := range []*allocation.Job{first, second} {
		expect.Equal(t, job.Name.Name, []string{"a", "a"}, got[job.Name].Nodes)
	}
}

func TestEndedRanksDoNotBlockFreeCapacity(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 2, 0), node("b", 2, 0)})
	foreign := &corev1.Pod{Spec: *pod("1", 0)}
	foreign.Spec.NodeName = "a"
	snapshot.Occupy(foreign)
	ended, fresh := collectors(snapshot, "ended", 2, 2, pod("2", 0)), collectors(snapshot, "fresh", 1, 1, pod("1", 0))
	ended.Ended = map[int]bool{0: true}
	placed := map[types.NamespacedName][]string{ended.Name: {"a", "b"}}
	jobs := []*allocation.Job{ended, fresh}
	to := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: snapshot.Nodes, Previous: placed})[fresh.Name].Nodes
	expect.MustEqual(t, "nodes", []string{"a"}, to)
	if _, moves := allocation.NewLedger(jobs, snapshot.Nodes, placed).Move(fresh, to); !moves {
		t.Error("free capacity is not given")
	}
}

func TestAJobWithAnotherPlacementNeedsCapacityForEndedRanksToo(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 2, 0), node("b", 1, 0), node("c", 1, 0)})
	moved, other := collectors(snapshot, "moved", 2, 2, pod("1", 0)), collectors(snapshot, "other", 1, 1, pod("1", 0))
	moved.Ended = map[int]bool{0: true}
	jobs, placed := []*allocation.Job{moved, other}, map[types.NamespacedName][]string{moved.Name: {"a", "a"}, other.Name: {"b"}}
	ledger := allocation.NewLedger(jobs, snapshot.Nodes, placed)
	if _, moves := ledger.Move(moved, []string{"b", "c"}); moves {
		t.Error("it gets capacity that another job has")
	}
	if _, moves := ledger.Move(other, []string{"a"}); moves {
		t.Error("another job gets capacity that it has")
	}
}

func TestNoJobIsPlacedWherePodsStillTerminate(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 4, 0)})
	stays, moved, fresh := collectors(snapshot, "stays", 2, 2, pod("1", 0)), collectors(snapshot, "moved", 2, 2, pod("1", 0)), collectors(snapshot, "fresh", 4, 4, pod("1", 0))
	leaving := &corev1.Pod{Spec: *pod("1", 0)}
	leaving.Spec.NodeName = "a"
	// Two pods of the job are still on "a", and its placement has one rank there.
	snapshot.Leave(moved, []string{"a", "b"}, []*corev1.Pod{leaving, leaving})
	previous := map[types.NamespacedName][]string{stays.Name: {"a", "a"}, moved.Name: {"a", "b"}}
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{stays, moved, fresh}, Nodes: snapshot.Nodes, Previous: previous})
	for job, want := range map[*allocation.Job][]string{stays: {"a", "a"}, moved: {"a", "b"}, fresh: nil} {
		expect.Equal(t, job.Name.Name, want, got[job.Name].Nodes)
	}
	free := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0)})
	free.Leave(moved, nil, []*corev1.Pod{leaving})
	if got := (Fit{}).Allocate(collectors(free, "one", 1, 4, pod("1", 0)), free.Nodes).Nodes; len(got) != 3 {
		t.Errorf("beside a terminating pod on a node of 4 a new job gets %v", got)
	}
}

func TestAJobGrowsNeitherTooSoonNorWithEndedRanks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		held  time.Duration
		ended map[int]bool
		want  int
	}{
		"too soon": {time.Minute, nil, 2}, "after that": {5 * time.Minute, nil, 4}, "with an ended rank": {time.Hour, map[int]bool{1: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0)})
			job := collectors(snapshot, "job", 1, 4, pod("1", 0))
			job.Held, job.Ended = tc.held, tc.ended
			got := Fit{GrowAfter: 5 * time.Minute}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job}, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{job.Name: {"a", "a"}}})
			if len(got[job.Name].Nodes) != tc.want {
				t.Errorf("it gets %+v", got[job.Name])
			}
		})
	}
}

func TestAJobThatIsResizedLiveGrowsAtOnceBehindItsReplicas(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 2, 0), node("c", 8, 0)})
	job := collectors(snapshot, "job", 1, 7, pod("1", 0))
	job.ResizesLive = true
	other := collectors(snapshot, "other", 2, 2, pod("1", 0))
	previous := map[types.NamespacedName][]string{job.Name: {"b", "a", "b"}, other.Name: {"c", "c"}}
	got := Fit{GrowAfter: 5 * time.Minute}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job, other}, Nodes: snapshot.Nodes, Previous: previous})
	expect.Equal(t, "nodes", []string{"b", "a", "b", "a", "a", "a", "c"}, got[job.Name].Nodes)
	if job.Restarts(previous[job.Name], got[job.Name].Nodes) {
		t.Error("its replicas restart")
	}
	if got[job.Name].Reason != allocation.ReasonPlaced {
		t.Errorf("it is %s: %s", got[job.Name].Reason, got[job.Name].Message)
	}
}

func TestNoJobGrowsIntoTheCapacityThatAnotherMustHave(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0)})
	job, must := collectors(snapshot, "job", 1, 4, pod("1", 0)), collectors(snapshot, "must", 4, 4, pod("1", 0))
	previous := map[types.NamespacedName][]string{job.Name: {"a"}, must.Name: {"a", "a"}}
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job, must}, Nodes: snapshot.Nodes, Previous: previous})
	if len(got[job.Name].Nodes) != 1 || len(got[must.Name].Nodes) != 2 || got[must.Name].Reason != allocation.ReasonPartiallyPlaced {
		t.Errorf("it gets %+v beside %+v", got[job.Name], got[must.Name])
	}
}

func TestAJobThatTheNodesCannotHoldDoesNotPreventGrowth(t *testing.T) {
	t.Parallel()
	snapshot := allocation.NewSnapshot([]*corev1.Node{node("a", 4, 0)})
	job, huge := collectors(snapshot, "job", 1, 4, pod("1", 0)), collectors(snapshot, "huge", 5, 5, pod("1", 0))
	got := Fit{}.Optimize(&allocation.Round{Jobs: []*allocation.Job{job, huge}, Nodes: snapshot.Nodes, Previous: map[types.NamespacedName][]string{job.Name: {"a"}}})
	if len(got[job.Name].Nodes) != 4 {
		t.Errorf("it gets %+v", got[job.Name])
	}
}

// TestEveryWrittenPartOfARoundFits lets several writes run at a time, and random ones fail. After each other
// write no node may be overcommitted, except by ended ranks.
func TestEveryWrittenPartOfARoundFits(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		snapshot, jobs := anyCluster(random, 2+random.IntN(8), 4+random.IntN(30))
		written := map[types.NamespacedName][]string{}
		for round := range 6 {
			// Nodes leave and return, so jobs exchange placements.
			nodes := slices.Clone(snapshot.Nodes)
			random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
			nodes = nodes[random.IntN(2):]
			endSome(random, snapshot, jobs, written)
			placements := Fit{}.Optimize(&allocation.Round{Jobs: jobs, Nodes: nodes, Previous: written})
			ledger := allocation.NewLedger(jobs, nodes, cloned(written))
			var writes []func()
			for _, job := range jobs {
				to := placements[job.Name].Nodes
				end, moves := ledger.Move(job, to)
				if !moves {
					continue
				}
				writes = append(writes, func() {
					succeeds := random.IntN(3) > 0
					if succeeds && !slices.Equal(written[job.Name], to) {
						written[job.Name], job.Ended = to, nil
					}
					end(succeeds)
					if message := overWritten(nodes, jobs, written); message != "" {
						t.Fatalf("seed %d, round %d, job %s: %s", seed, round, job.Name.Name, message)
					}
				})
				for len(writes) > 0 && random.IntN(3) > 0 {
					next := random.IntN(len(writes))
					writes[next]()
					writes = slices.Delete(writes, next, next+1)
				}
			}
			for _, write := range writes {
				write()
			}
		}
	}
}

// endSome ends a rank of some jobs, and lets foreign pods take its capacity.
func endSome(random *rand.Rand, snapshot *allocation.Snapshot, jobs []*allocation.Job, written map[types.NamespacedName][]string) {
	for _, job := range jobs {
		nodes := written[job.Name]
		if len(nodes) == 0 || len(job.Ended) > 0 || random.IntN(3) > 0 {
			continue
		}
		rank := random.IntN(len(nodes))
		elastic, _ := job.ElasticOf(len(nodes))
		for at, pod := range job.Ranks(elastic) {
			if at == rank {
				snapshot.Reserve(&allocation.Job{Elastic: -1, Tasks: []allocation.Task{{Replicas: 1, Pod: pod}}}, []string{nodes[rank]})
			}
		}
		job.Ended = map[int]bool{rank: true}
	}
}

func cloned(placed map[types.NamespacedName][]string) map[types.NamespacedName][]string {
	copied := map[types.NamespacedName][]string{}
	for name, nodes := range placed {
		copied[name] = nodes
	}
	return copied
}

// overWritten describes a node whose written placements exceed its capacity, "" for none.
func overWritten(nodes []*allocation.Node, jobs []*allocation.Job, written map[types.NamespacedName][]string) string {
	board := allocation.NewBoard(nodes)
	for _, job := range jobs {
		board.Hold(job, written[job.Name])
	}
	return board.Overcommitted()
}
