// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var levels = []string{"topology.kubernetes.io/zone", "example.com/rack"}

// cluster returns nodes of 8 GPUs; each is named for its zone, its rack and itself, such as x1a. A node of rack 0 has none.
func cluster(names ...string) *allocation.Snapshot {
	var nodes []*corev1.Node
	for _, name := range names {
		labels := map[string]string{levels[0]: name[:1], levels[1]: name[1:2]}
		if labels[levels[1]] == "0" {
			delete(labels, levels[1])
		}
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status: corev1.NodeStatus{
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("64")},
			},
		})
	}
	snapshot := allocation.NewSnapshot(nodes)
	snapshot.Locate(levels)
	return snapshot
}

func job(snapshot *allocation.Snapshot, name string, replicas int32, requests corev1.ResourceList) *allocation.Job {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}
	return &allocation.Job{
		Name: types.NamespacedName{Namespace: "space", Name: name}, Min: replicas, Wanted: replicas,
		Tasks: []allocation.Task{{Name: "trainer", Pod: snapshot.RequirementsOf(spec)}},
	}
}

var (
	eightGPUs = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	cores     = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
)

func TestAMessageSaysInWhichDomainsAJobIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		snapshot *allocation.Snapshot
		requests corev1.ResourceList
		nodes    []string
		want     string
	}{
		"one node":             {cluster("x1a", "x2a"), eightGPUs, []string{"x1a"}, "1 replica on 1 node"},
		"one rack":             {cluster("x1a", "x1b", "x2a"), eightGPUs, []string{"x1a", "x1b"}, "2 replicas on 2 nodes in rack 1"},
		"two racks, all small": {cluster("x1a", "x2a", "y1a"), eightGPUs, []string{"x1a", "x2a"}, "2 replicas on 2 nodes across 2 racks, no rack has 16 nvidia.com/gpu free"},
		"two racks, one large": {cluster("x1a", "x2a", "y1a", "y1b"), eightGPUs, []string{"x1a", "x2a"}, "2 replicas on 2 nodes across 2 racks"},
		"two racks of a kind":  {cluster("x1a", "x2a", "x2b"), eightGPUs, []string{"x1a", "x2a"}, "2 replicas on 2 nodes across 2 racks"},
		"two zones":            {cluster("x1a", "y1a"), eightGPUs, []string{"x1a", "y1a"}, "2 replicas on 2 nodes across 2 zones, no zone has 16 nvidia.com/gpu free"},
		"no GPUs":              {cluster("x1a", "x2a"), cores, []string{"x1a", "x2a"}, "2 replicas on 2 nodes across 2 racks"},
		"no racks":             {cluster("x0a", "x0b", "y0a"), eightGPUs, []string{"x0a", "x0b"}, "2 replicas on 2 nodes in zone x"},
		"one domain":           {cluster("x1a", "x1b"), eightGPUs, []string{"x1a", "x1b"}, "2 replicas on 2 nodes"},
		"nodes without a rack": {cluster("x0a", "x0b", "x1a"), eightGPUs, []string{"x0a", "x0b"}, "2 replicas on 2 nodes across 2 racks, no rack has 16 nvidia.com/gpu free"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := job(tc.snapshot, "one", int32(len(tc.nodes)), tc.requests)
			message := fmt.Sprintf("%d replicas on %d nodes", len(tc.nodes), len(tc.nodes))
			if len(tc.nodes) == 1 {
				message = "1 replica on 1 node"
			}
			decided := map[types.NamespacedName]allocation.Placement{one.Name: {Nodes: tc.nodes, Message: message + "; more"}}
			Explain(&allocation.Round{Jobs: []*allocation.Job{one}, Nodes: tc.snapshot.Nodes}, decided)
			expect.Equal(t, "message", tc.want+"; more", decided[one.Name].Message)
		})
	}
}

func TestAMessageOfAnyPolicySaysInWhichDomainAJobIs(t *testing.T) {
	t.Parallel()
	snapshot := cluster("x1a", "x1b", "x2a")
	one := job(snapshot, "one", 2, eightGPUs)
	decided := map[types.NamespacedName]allocation.Placement{one.Name: {Nodes: []string{"x1a", "x1b"}, Message: "mine"}}
	Explain(&allocation.Round{Jobs: []*allocation.Job{one}, Nodes: snapshot.Nodes}, decided)
	expect.Equal(t, "message", "mine; on 2 nodes in rack 1", decided[one.Name].Message)
}

func TestCapacityOfOtherJobsIsNotFree(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]allocation.Policy{"fit": fit.Fit{}, "goodput": goodput.New(goodput.DefaultSettings())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			snapshot := cluster("x1a", "x1b", "x2a", "x2b")
			var jobs []*allocation.Job
			previous := map[types.NamespacedName][]string{}
			for _, node := range []string{"x1a", "x2a"} {
				small := job(snapshot, "on-"+node, 1, eightGPUs)
				previous[small.Name] = []string{node}
				jobs = append(jobs, small)
			}
			large := job(snapshot, "large", 2, eightGPUs)
			round := &allocation.Round{Jobs: append(jobs, large), Nodes: snapshot.Nodes, Previous: previous}
			decided := policy.Optimize(round)
			Explain(round, decided)
			expect.Equal(t, "nodes", []string{"x1b", "x2b"}, slices.Sorted(slices.Values(decided[large.Name].Nodes)))
			expect.Equal(t, "message", "2 replicas on 2 nodes across 2 racks, no rack has 16 nvidia.com/gpu free", decided[large.Name].Message)
		})
	}
}
