// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/allocation/topology"
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
	// byName has the nodes by name.
	byName map[string]*Node
}

// NewSnapshot returns a snapshot of nodes without pods.
func NewSnapshot(nodes []*corev1.Node) *Snapshot {
	snapshot := &Snapshot{axis: axisOf(nodes), byName: make(map[string]*Node, len(nodes))}
	snapshot.total = make([]int64, len(snapshot.axis))
	for _, node := range nodes {
		free := snapshot.amounts(node.Status.Allocatable)
		take(snapshot.total, free, -1)
		snapshot.Nodes = append(snapshot.Nodes, &Node{Object: node, Free: free, Closed: !takesPods(node)})
	}
	slices.SortFunc(snapshot.Nodes, byName)
	for _, node := range snapshot.Nodes {
		snapshot.byName[node.Object.Name] = node
	}
	return snapshot
}

// Locate sets the domains of the nodes by their labels, from the widest level to the narrowest.
func (s *Snapshot) Locate(labels []string) {
	if len(labels) == 0 {
		return
	}
	for _, node := range s.Nodes {
		node.Domains = topology.Of(node.Object.Labels, labels)
	}
}

// TreeOf returns the domains of nodes; nil if these are all of one domain.
func TreeOf(nodes []*Node) *topology.Tree {
	domains := make([][]topology.Domain, len(nodes))
	for at, node := range nodes {
		domains[at] = node.Domains
	}
	return topology.New(domains)
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
	node := s.find(pod.Spec.NodeName)
	switch {
	case node == nil:
	case isPlain(pod):
		s.occupyPlain(node, pod)
	default:
		take(node.Free, s.amounts(s.requestsOf(pod)), 1)
	}
}

// isPlain reports whether the requests of a pod are the sum of those of its containers. The status of a pod
// may have other requests, for example while it is resized in place; the operator's cache drops the status of
// pods that belong to no job.
func isPlain(pod *corev1.Pod) bool {
	spec, status := &pod.Spec, &pod.Status
	return len(spec.InitContainers) == 0 && spec.Resources == nil && len(spec.Overhead) == 0 && len(spec.ResourceClaims) == 0 &&
		len(status.ContainerStatuses) == 0 && len(status.Conditions) == 0
}

// occupyPlain takes the requests of a plain pod without a list of their sums. Most pods of a cluster are
// plain, and every round takes all of them.
func (s *Snapshot) occupyPlain(node *Node, pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		for name, quantity := range pod.Spec.Containers[i].Resources.Requests {
			if at, known := s.axis[name]; known {
				node.Free[at] -= amountOf(name, &quantity)
			}
		}
	}
	if at, known := s.axis[corev1.ResourcePods]; known {
		node.Free[at]--
	}
}

// amountOf returns a quantity of a resource as a number.
func amountOf(name corev1.ResourceName, quantity *resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
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
func (s *Snapshot) find(name string) *Node { return s.byName[name] }

// amounts returns amounts by the axis. It drops resources that no node has.
func (s *Snapshot) amounts(list corev1.ResourceList) []int64 {
	amounts := make([]int64, len(s.axis))
	for name, quantity := range list {
		if i, known := s.axis[name]; known {
			amounts[i] = amountOf(name, &quantity)
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
