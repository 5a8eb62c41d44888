// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"opendilab.org/di-orchestrator/internal/conditions"
)

// Snapshot is what of the cluster's nodes is free at one moment. Amounts of
// resources are numbers in a fixed order, the axis: CPU in thousandths of a
// core, everything else in its own unit.
type Snapshot struct {
	// Nodes are the nodes by name.
	Nodes []*Node
	axis  map[corev1.ResourceName]int
}

// NewSnapshot returns a snapshot of nodes that nothing runs on.
func NewSnapshot(nodes []*corev1.Node) *Snapshot {
	snapshot := &Snapshot{axis: map[corev1.ResourceName]int{}}
	for _, node := range nodes {
		for name := range node.Status.Allocatable {
			if _, known := snapshot.axis[name]; !known {
				snapshot.axis[name] = len(snapshot.axis)
			}
		}
	}
	for _, node := range nodes {
		free := snapshot.amounts(node.Status.Allocatable)
		snapshot.Nodes = append(snapshot.Nodes, &Node{Object: node, Free: free, Closed: !takesPods(node)})
	}
	slices.SortFunc(snapshot.Nodes, func(a, b *Node) int { return strings.Compare(a.Object.Name, b.Object.Name) })
	return snapshot
}

func takesPods(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && node.DeletionTimestamp.IsZero() && conditions.IsNodeReady(node)
}

// Occupy takes what a pod has of its node.
func (s *Snapshot) Occupy(pod *corev1.Pod) {
	if node := s.find(pod.Spec.NodeName); node != nil {
		take(node.Free, s.requests(pod), 1)
	}
}

// Reserve takes the room of where a job is placed.
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

// Leave notes what the pods of a job have of their nodes beyond what it is placed
// there with.
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
		take(beyond[node], s.requests(pod), -1)
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

// leave adds what is more than nothing to what leaves a node.
func (n *Node) leave(amounts []int64) {
	if n.Leaving == nil {
		n.Leaving = make([]int64, len(amounts))
	}
	for i, amount := range amounts {
		n.Leaving[i] += max(amount, 0)
	}
}

// find returns the node of a name, nil for none.
func (s *Snapshot) find(name string) *Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(node *Node, name string) int {
		return strings.Compare(node.Object.Name, name)
	})
	if !found {
		return nil
	}
	return s.Nodes[i]
}

// amounts returns amounts by the axis; what the axis does not have no node has.
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

func (s *Snapshot) requests(pod *corev1.Pod) []int64 {
	return s.amounts(s.requestList(pod))
}

// requestList returns what a pod asks its node for; one place for a pod among it.
func (s *Snapshot) requestList(pod *corev1.Pod) corev1.ResourceList {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	if _, known := s.axis[corev1.ResourcePods]; known {
		list[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return list
}

// Requirements are what a replica asks for, and which nodes it accepts.
type Requirements struct {
	amounts []int64
	// names are the resources that it asks for, for people.
	names       map[int]corev1.ResourceName
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	// impossible is set where it asks for a resource that no node has.
	impossible corev1.ResourceName
}

// RequirementsOf returns the requirements of pods of a spec.
func (s *Snapshot) RequirementsOf(spec *corev1.PodSpec) *Requirements {
	pod := &corev1.Pod{Spec: *spec}
	list := s.requestList(pod)
	requirements := &Requirements{
		names:       map[int]corev1.ResourceName{},
		affinity:    nodeaffinity.GetRequiredNodeAffinity(pod),
		tolerations: spec.Tolerations,
	}
	requirements.amounts = s.amounts(list)
	for name, quantity := range list {
		if i, known := s.axis[name]; known {
			requirements.names[i] = name
		} else if !quantity.IsZero() {
			requirements.impossible = name
		}
	}
	return requirements
}

// accepts reports whether pods of these requirements may run on a node, if it
// has room.
func (r *Requirements) accepts(node *corev1.Node) bool {
	if r.impossible != "" {
		return false
	}
	if match, err := r.affinity.Match(node); err != nil || !match {
		return false
	}
	return r.tolerates(node, keepsAway(node))
}

// MayStay reports whether pods of these requirements that are on a node already
// are left there.
func (r *Requirements) MayStay(node *corev1.Node) bool {
	return r.tolerates(node, drivesOut)
}

func (r *Requirements) tolerates(node *corev1.Node, matters func(*corev1.Taint) bool) bool {
	_, repelled := schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, r.tolerations, matters, false)
	return !repelled
}

// keepsAway returns what tells the taints of a node that keep pods from being
// placed there. That it is not ready is not among them where it says that it is
// by now: the taint goes in a moment.
func keepsAway(node *corev1.Node) func(*corev1.Taint) bool {
	ready := conditions.IsNodeReady(node)
	return func(taint *corev1.Taint) bool {
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule:
			return taint.Key != corev1.TaintNodeNotReady || !ready
		case corev1.TaintEffectNoExecute:
			return true
		case corev1.TaintEffectPreferNoSchedule:
		}
		return false
	}
}

// drivesOut tells the taints that pods are evicted for at once. A node that is
// out of reach may come back.
func drivesOut(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoExecute &&
		taint.Key != corev1.TaintNodeNotReady && taint.Key != corev1.TaintNodeUnreachable
}

// room returns how many pods of these requirements, and no more than so many,
// the amounts hold.
func (r *Requirements) room(free []int64, most int32) int32 {
	room := int64(most)
	for i, amount := range r.amounts {
		if amount > 0 {
			room = min(room, max(free[i], 0)/amount)
		}
	}
	return int32(room)
}

// take subtracts an amount so many times.
func take(free, amounts []int64, times int32) {
	for i := range free {
		free[i] -= amounts[i] * int64(times)
	}
}

// IsClosed reports whether a node takes no further pods. One that has not said
// yet whether it is ready may be about to be.
func (s *Snapshot) IsClosed(name string) bool {
	node := s.find(name)
	return node != nil && node.Closed && (node.Object.Spec.Unschedulable || conditions.OfNode(node.Object, corev1.NodeReady) != nil)
}
