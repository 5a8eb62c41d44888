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
