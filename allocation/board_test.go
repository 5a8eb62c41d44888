// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// list returns amounts of CPUs and GPUs.
func list(cpus, gpus int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), gpu: *resource.NewQuantity(gpus, resource.DecimalSI),
	}
}

// node returns a ready node with that many CPUs and GPUs.
func node(name string, cpus, gpus int64) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: list(cpus, gpus),
		},
	}
}

// asking returns a pod that requests that many CPUs and GPUs.
func asking(cpus, gpus int64) *corev1.PodSpec {
	return &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list(cpus, gpus)}}}}
}

// collectors returns a job with one elastic task.
func collectors(snapshot *Snapshot, name string, least, wanted int32, spec *corev1.PodSpec) *Job {
	return &Job{
		Name: types.NamespacedName{Namespace: "space", Name: name}, Created: time.Unix(0, 0),
		Tasks: []Task{{Name: "collector", Pod: snapshot.RequirementsOf(spec)}}, Min: least, Wanted: wanted,
	}
}

func TestABoardPlacesExactlyTheCountOrTakesNothing(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 2, 0)})
	board := NewBoard(snapshot.Nodes)
	job := collectors(snapshot, "job", 1, 9, asking(1, 0))
	if nodes, fits := board.PlaceCount(job, 7); fits {
		t.Errorf("6 CPUs hold 7 replicas: %v", nodes)
	}
	nodes, fits := board.PlaceCount(job, 5)
	if diff := cmp.Diff([]string{"a", "a", "a", "a", "b"}, nodes); !fits || diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if nodes, fits := board.PlaceCount(job, 2); fits {
		t.Errorf("the rest of 1 CPU holds 2 replicas: %v", nodes)
	}
	board.Return(job, nodes)
	if _, fits := board.PlaceCount(job, 6); !fits {
		t.Error("capacity that was given back is not free")
	}
}

func TestAClonedBoardIsIndependent(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 4, 0)})
	board := NewBoard(snapshot.Nodes)
	job := collectors(snapshot, "job", 1, 4, asking(1, 0))
	clone := board.Clone()
	stay := clone.Keep(job, []string{"a", "a", "a"})
	if _, fits := clone.PlaceCount(job, 2); fits {
		t.Error("the clone forgets what was taken on it")
	}
	if _, fits := board.Clone().PlaceCount(job, 4); !fits {
		t.Error("what is taken on a clone is taken on the board")
	}
	clone.Release(stay)
	if _, fits := clone.PlaceCount(job, 4); !fits {
		t.Error("what is released on the clone is not free")
	}
}

func TestAJobThatCannotFitIsPackedOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		least, wanted int32
		learners      int32
		want          int
		placed        int
	}{
		"no learner fits":           {1, 4000, 9, 1, 0},
		"all fit":                   {1, 8, 1, 2, 9},
		"only some fit":             {1, 4000, 1, 8, 64},
		"the size cannot change":    {8, 8, 1, 1, 9},
		"the least size is too big": {4000, 4000, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := NewSnapshot([]*corev1.Node{node("a", 32, 1), node("b", 32, 1)})
			board := NewBoard(snapshot.Nodes)
			job := collectors(snapshot, "job", tc.least, tc.wanted, asking(1, 0))
			job.Tasks = append(job.Tasks, Task{Name: "learner", Replicas: tc.learners, Pod: snapshot.RequirementsOf(asking(1, 1))})
			if got := board.Place(job).Nodes; len(got) != tc.placed {
				t.Errorf("placed %d replicas, want %d", len(got), tc.placed)
			}
			if board.packings > tc.want {
				t.Errorf("packed %d times, want at most %d", board.packings, tc.want)
			}
		})
	}
}

func TestAJobLikeOneThatDidNotFitIsNotPackedUntilCapacityIsGivenBack(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 4, 0)})
	board := NewBoard(snapshot.Nodes)
	first := collectors(snapshot, "first", 3, 3, asking(1, 0))
	board.Place(first)
	packed := board.packings
	for range 1000 {
		if placed := board.Place(collectors(snapshot, "other", 2, 9, asking(1, 0))); len(placed.Nodes) > 0 || placed.Message == "" {
			t.Fatalf("got %+v", placed)
		}
	}
	if packed+1 != board.packings {
		t.Errorf("packed %d times, want once", board.packings-packed)
	}
	if placed := board.Place(collectors(snapshot, "small", 1, 1, asking(1, 0))); len(placed.Nodes) != 1 {
		t.Errorf("another job gets %+v", placed)
	}
	board.Return(first, []string{"a", "a", "a"})
	if placed := board.Place(collectors(snapshot, "other", 2, 9, asking(1, 0))); len(placed.Nodes) != 3 {
		t.Errorf("after capacity was given back it gets %+v", placed)
	}
}

func TestTasksOfScarceResourcesArePlacedFirst(t *testing.T) {
	t.Parallel()
	for range 1000 {
		// The order of resources must not depend on that of the map of allocatable resources.
		snapshot := NewSnapshot([]*corev1.Node{node("cpu", 8, 0), node("gpu", 16, 2)})
		job := collectors(snapshot, "job", 11, 11, asking(2, 0))
		job.Tasks = append(job.Tasks, Task{Name: "learner", Replicas: 2, Pod: snapshot.RequirementsOf(asking(1, 1))})
		placed := NewBoard(snapshot.Nodes).Place(job)
		want := []string{"gpu", "gpu", "gpu", "gpu", "gpu", "gpu", "gpu", "cpu", "cpu", "cpu", "cpu", "gpu", "gpu"}
		if diff := cmp.Diff(want, placed.Nodes); diff != "" {
			t.Fatalf("nodes (-want +got):\n%s\n%s", diff, placed.Message)
		}
	}
}

func TestAJobIsPackedInTheReverseOrderIfScarcityFails(t *testing.T) {
	t.Parallel()
	east, west := node("east", 3, 0), node("west", 4, 0)
	east.Labels = map[string]string{"zone": "east"}
	snapshot := NewSnapshot([]*corev1.Node{east, west})
	bound := asking(1, 0)
	bound.NodeSelector = east.Labels
	// The larger replicas would take the node that the smaller ones are bound to.
	job := &Job{Elastic: -1, Tasks: []Task{
		{Name: "large", Replicas: 2, Pod: snapshot.RequirementsOf(asking(2, 0))},
		{Name: "bound", Replicas: 3, Pod: snapshot.RequirementsOf(bound)},
	}}
	expect.Equal(t, "nodes", []string{"west", "west", "east", "east", "east"}, NewBoard(snapshot.Nodes).Place(job).Nodes)
}

func TestAnExcludedNodeTakesNoReplicaOfTheJob(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 2, 0)})
	job := collectors(snapshot, "job", 1, 4, asking(1, 0))
	job.Excluded = map[string]bool{"a": true}
	expect.Equal(t, "nodes", []string{"b", "b"}, NewBoard(snapshot.Nodes).Place(job).Nodes)
	if NewBoard(snapshot.Nodes).Keep(job, []string{"a"}) != nil {
		t.Error("a pod that does not run stays on the excluded node")
	}
	job.Running = map[int]string{0: "a"}
	if NewBoard(snapshot.Nodes).Keep(job, []string{"a"}) == nil {
		t.Error("a pod that runs must leave the excluded node")
	}
	job.Min = 3
	want := "insufficient capacity on 2 nodes; task collector wants 3: there is capacity for 2 on its own, the scheduler did not place pods of the job on 1 node"
	if got := NewBoard(snapshot.Nodes).Place(job).Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAReservedNodeTakesNoFurtherJobs(t *testing.T) {
	t.Parallel()
	snapshot := NewSnapshot([]*corev1.Node{node("a", 4, 0), node("b", 2, 0)})
	board := NewBoard(snapshot.Nodes)
	board.Reserve([]string{"a", "unknown"})
	expect.Equal(t, "nodes", []string{"b", "b"}, board.Clone().Place(collectors(snapshot, "job", 1, 4, asking(1, 0))).Nodes)
	want := "insufficient capacity on 2 nodes; task collector wants 3: there is capacity for 2 on its own, 1 node is reserved for a job that waits for longer"
	if got := board.Place(collectors(snapshot, "job", 3, 4, asking(1, 0))).Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
