// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobWhosePodsRunStaysOnANodeThatHasLostItsCapacity(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 0), node("b", 8, 2)})
	job := collectors(snapshot, "job", 1, 3, asking(1, 1))
	job.Wanted, job.Running = 2, map[int]string{0: "a"}
	for name, tc := range map[string]struct {
		previous []string
		stays    bool
	}{
		"all run":                               {[]string{"a"}, true},
		"one runs, the other has capacity":      {[]string{"a", "b"}, true},
		"one runs, the other has none":          {[]string{"a", "a"}, false},
		"the node is gone":                      {[]string{"gone"}, false},
		"another size would restart the job":    {[]string{"a", "b", "b"}, false},
		"the pod runs on another node":          {[]string{"b", "a"}, false},
		"it was never placed":                   {nil, false},
		"a new rank is placed later":            {[]string{"a", ""}, true},
		"the first rank, which runs, has moved": {[]string{"", "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := NewBoard(snapshot.Nodes).Keep(job, tc.previous); (got != nil) != tc.stays {
				t.Errorf("it stays: %t", got != nil)
			}
		})
	}
	board := NewBoard(snapshot.Nodes)
	board.Keep(job, []string{"a"})
	expect.Equal(t, "a new job", []string{"b", "b"}, board.Place(collectors(snapshot, "new", 1, 9, asking(1, 1))).Nodes)
}

// TestARankThatWaitsDoesNotStayWhereOneThatRunsHasTheCapacity covers a node that has got smaller: the pod of the other rank
// could never start there.
func TestARankThatWaitsDoesNotStayWhereOneThatRunsHasTheCapacity(t *testing.T) {
	t.Parallel()
	for rank := range 2 {
		snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 1)})
		job := collectors(snapshot, "job", 2, 2, asking(1, 1))
		job.Running = map[int]string{rank: "a"}
		if NewBoard(snapshot.Nodes).Keep(job, []string{"a", "a"}) != nil {
			t.Errorf("rank %d runs on a node for one, and the other waits there", rank)
		}
	}
}

func TestAJobDoesNotReturnToCapacityThatAnotherWasGiven(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gpus    int64
		other   bool
		leaving int32
		returns bool
	}{
		"the capacity is still free":               {gpus: 2, returns: true},
		"another job was given it":                 {gpus: 2, other: true},
		"the node has lost it":                     {gpus: 1, returns: true},
		"a terminating pod has a part of it":       {gpus: 3, leaving: 1, returns: true},
		"a terminating pod has what the node lost": {gpus: 2, leaving: 1, returns: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := NewSnapshot([]*corev1.Node{node("a", 8, tc.gpus)})
			job := collectors(snapshot, "job", 2, 2, asking(1, 1))
			job.Running = map[int]string{0: "a", 1: "a"}
			board := NewBoard(snapshot.Nodes)
			stay := board.Keep(job, []string{"a", "a"})
			if stay == nil {
				t.Fatal("the job cannot keep its node")
			}
			board.Settle()
			snapshot.Nodes[0].Leaving = make([]int64, len(snapshot.Nodes[0].Free))
			take(snapshot.Nodes[0].Leaving, job.Tasks[0].Pod.amounts, -tc.leaving)
			board.Leave(snapshot.Nodes)
			board.Release(stay)
			if tc.other && len(board.Place(collectors(snapshot, "other", 1, 1, asking(1, 1))).Nodes) != 1 {
				t.Fatal("the other job has no place")
			}
			before := board.Overcommitted()
			if returned := board.Keep(job, []string{"a", "a"}); (returned != nil) != tc.returns {
				t.Errorf("the job returns: %t, want %t", returned != nil, tc.returns)
			} else if returned == nil && board.Overcommitted() != before {
				t.Errorf("a job that does not return has taken capacity: %s", board.Overcommitted())
			}
		})
	}
}

func TestALiveResizeRestartsNothing(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 8, 0)})
	job := collectors(snapshot, "job", 1, 3, asking(1, 0))
	for name, tc := range map[string]struct {
		before, after []string
		live, asked   bool
	}{
		"growth":            {[]string{"a"}, []string{"a", "b"}, false, true},
		"fewer":             {[]string{"a", "b"}, []string{"a"}, false, true},
		"a move":            {[]string{"a"}, []string{"b"}, true, true},
		"a move and growth": {[]string{"a"}, []string{"b", "b"}, true, true},
		"the same":          {[]string{"a"}, []string{"a"}, false, false},
		"the first start":   {nil, []string{"a"}, false, false},
		"a stop":            {[]string{"a"}, nil, false, false},
	} {
		job.ResizesLive = true
		if got := job.Restarts(tc.before, tc.after); got != tc.live {
			t.Errorf("%s of a job that is resized live restarts it: %t", name, got)
		}
		job.ResizesLive = false
		if got := job.Restarts(tc.before, tc.after); got != tc.asked {
			t.Errorf("%s of another job restarts it: %t", name, got)
		}
	}
}

func TestOnlyTheRanksWithoutCapacityGetAnotherNode(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 2, 0), node("b", 1, 0), node("c", 4, 0)})
	foreign := &corev1.Pod{Spec: *asking(1, 0)}
	foreign.Spec.NodeName = "a"
	snapshot.Occupy(foreign)
	job := collectors(snapshot, "job", 3, 3, asking(1, 0))
	board := NewBoard(snapshot.Nodes)
	if board.Keep(job, []string{"a", "a", "b"}) != nil {
		t.Fatal("there is no capacity for rank 1 on node a")
	}
	kept := board.KeepSome(job, []string{"a", "a", "b"})
	if kept == nil || !board.Complete(kept) {
		t.Fatalf("it does not stay: %+v", kept)
	}
	expect.Equal(t, "nodes", []string{"a", "c", "b"}, kept.Placement().Nodes)
	if board.KeepSome(job, []string{"gone", "a", "b"}) != nil {
		t.Error("no rank has capacity, but it stays")
	}
}

func TestAShrunkJobKeepsTheNodesOfItsFirstReplicas(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 2, 0), node("b", 2, 0)})
	board := NewBoard(snapshot.Nodes)
	job := collectors(snapshot, "job", 1, 4, asking(1, 0))
	kept := board.Seated(job, board.Place(job).Nodes)
	shrunk := board.Shrink(kept)
	expect.Equal(t, "nodes", []string{"a"}, shrunk.Placement().Nodes)
	if board.Shrink(shrunk) != nil {
		t.Error("it shrinks below its least size")
	}
	if _, fits := board.PlaceCount(collectors(snapshot, "other", 3, 3, asking(1, 0)), 3); !fits {
		t.Error("its capacity is not free")
	}
	job.Ended = map[int]bool{0: true}
	if board.Shrink(kept) != nil {
		t.Error("a rank that has ended starts again")
	}
}

func TestALedgerGivesCapacityOnlyAfterItWasReleased(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 2, 0), node("b", 1, 0)})
	one, two := collectors(snapshot, "one", 1, 2, asking(1, 0)), collectors(snapshot, "two", 2, 2, asking(1, 0))
	written := map[types.NamespacedName][]string{one.Name: {"a", "a"}}
	ledger := NewLedger([]*Job{one, two}, snapshot.Nodes, written)
	if _, fits := ledger.Move(two, []string{"a", "a"}); fits {
		t.Error("two jobs have the same capacity")
	}
	for _, to := range [][]string{{"b"}, nil} {
		end, fits := ledger.Move(one, to)
		if !fits {
			t.Fatalf("one does not move to %v, which is free", to)
		}
		if _, fits := ledger.Move(two, []string{"a", "a"}); fits {
			t.Error("capacity is given although its release is not written yet")
		}
		end(false)
		if _, fits := ledger.Move(two, []string{"a", "a"}); fits {
			t.Error("capacity is given although its release could not be written")
		}
	}
	end, fits := ledger.Move(one, nil)
	if !fits {
		t.Fatal("a placement is not released")
	}
	end(true)
	if _, fits := ledger.Move(two, []string{"a", "a"}); !fits {
		t.Error("released capacity is not given")
	}
}
