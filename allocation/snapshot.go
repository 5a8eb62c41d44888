// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/internal/conditions"
)

// Snapshot is the free capacity of the cluster's nodes at one moment. Amounts of resources are numbers
// in a fixed order, the axis: CPU in thousandths of a core, everything else in its own unit.
type Snapshot struct {
	// Nodes are the nodes by name.
	Nodes []*Node
	// axis has the position of each resource, in the order of their names.
	axis map[corev1.ResourceName]int
	// total is what all nodes have.
	total []int64
}

// NewSnapshot returns a snapshot of nodes without pods.
func NewSnapshot(nodes []*corev1.Node) *Snapshot {
	snapshot := &Snapshot{axis: axisOf(nodes)}
	snapshot.total = make([]int64, len(snapshot.axis))
	for _, node := range nodes {
		free := snapshot.amounts(node.Status.Allocatable)
		take(snapshot.total, free, -1)
		snapshot.Nodes = append(snapshot.Nodes, &Node{Object: node, Free: free, Closed: !takesPods(node)})
	}
	slices.SortFunc(snapshot.Nodes, byName)
	return snapshot
}

// axisOf returns the position of each resource that a node has. The order must not depend on that of a
// map, because the order of tasks and of nodes depends on amounts.
func axisOf(nodes []*corev1.Node) map[corev1.ResourceName]int {
	var names []corev1.ResourceName
	for _, node := range nodes {
		for name := range node.Status.Allocatable {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	axis := map[corev1.ResourceName]int{}
	for i, name := range slices.Compact(names) {
		axis[name] = i
	}
	return axis
}

func byName(a, b *Node) int { return strings.Compare(a.Object.Name, b.Object.Name) }

func takesPods(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && node.DeletionTimestamp.IsZero() && conditions.IsNodeReady(node)
}

// Occupy takes the requests of a pod from its node.
func (s *Snapshot) Occupy(pod *corev1.Pod) {
	if node := s.find(pod.Spec.NodeName); node != nil {
		take(node.Free, s.amounts(s.requestsOf(pod)), 1)
	}
}

// Reserve takes the capacity of a job's placement.
func (s *Snapshot) Reserve(job *Job, placed []string) {
	elastic, _ := job.ElasticOf(len(placed))
	for rank, pod := range job.Ranks(max(elastic, 0)) {
		if rank >= len(placed) {
			return
		}
		if node := s.find(placed[rank]); node != nil {
			take(node.Free, pod.amounts, 1)
		}
	}
}

// Leave records what the pods of a job occupy on their nodes beyond its placement there.
func (s *Snapshot) Leave(job *Job, placed []string, pods []*corev1.Pod) {
	beyond := map[*Node][]int64{}
	for _, pod := range pods {
		node := s.find(pod.Spec.NodeName)
		if node == nil {
			continue
		}
		if beyond[node] == nil {
			beyond[node] = make([]int64, len(s.axis))
		}
		take(beyond[node], s.amounts(s.requestsOf(pod)), -1)
	}
	elastic, _ := job.ElasticOf(len(placed))
	for rank, pod := range job.Ranks(max(elastic, 0)) {
		if rank >= len(placed) {
			break
		}
		if amounts := beyond[s.find(placed[rank])]; amounts != nil {
			take(amounts, pod.amounts, 1)
		}
	}
	for node, amounts := range beyond {
		node.leave(amounts)
	}
}

// leave adds the positive amounts to what leaves a node.
func (n *Node) leave(amounts []int64) {
	if n.Leaving == nil {
		n.Leaving = make([]int64, len(amounts))
	}
	for i, amount := range amounts {
		n.Leaving[i] += max(amount, 0)
	}
}

// find returns the node of a name, nil if there is none.
func (s *Snapshot) find(name string) *Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(node *Node, name string) int {
		return strings.Compare(node.Object.Name, name)
	})
	if !found {
		return nil
	}
	return s.Nodes[i]
}

// amounts returns amounts by the axis. It drops resources that no node has.
func (s *Snapshot) amounts(list corev1.ResourceList) []int64 {
	amounts := make([]int64, len(s.axis))
	for name, quantity := range list {
		i, known := s.axis[name]
		switch {
		case known && name == corev1.ResourceCPU:
			amounts[i] = quantity.MilliValue()
		case known:
			amounts[i] = quantity.Value()
		}
	}
	return amounts
}

// requestsOf returns the requests of a pod, with one pod among them.
func (s *Snapshot) requestsOf(pod *corev1.Pod) corev1.ResourceList {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	if _, known := s.axis[corev1.ResourcePods]; known {
		list[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return list
}

// IsClosed reports whether a node takes no further pods. A node that has not reported yet whether it
// is ready may be ready soon.
func (s *Snapshot) IsClosed(name string) bool {
	node := s.find(name)
	return node != nil && node.Closed && (node.Object.Spec.Unschedulable || conditions.OfNode(node.Object, corev1.NodeReady) != nil)
}
