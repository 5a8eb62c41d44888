// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// nodeNames are the nodes that come and go.
var nodeNames = []string{"a", "b", "c"}

// newNode returns a node with a number of CPUs.
func newNode(name string, cpus int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)},
	}}
}

// anyPlaceable makes a worker-led job one that the allocator places. Each replica requests a CPU.
func anyPlaceable(random *rand.Rand, spec *v2alpha1.DIJobSpec) {
	spec.Preemptible = true
	for i := range spec.Tasks {
		spec.Tasks[i].Template = jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"image","resources":{"requests":{"cpu":"1"}}}]}}`)
	}
	if random.IntN(2) == 0 {
		spec.Priority = v2alpha1.PriorityHigh
	}
	if random.IntN(2) == 0 {
		spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To(1 + random.Int32N(4)), OnResize: v2alpha1.OnResizeContinue}
		if random.IntN(2) == 0 {
			spec.Tasks[1], spec.Tasks[2] = spec.Tasks[2], spec.Tasks[1]
		}
	}
}

// befallNode makes a node come, go, or change.
func (f *fleet) befallNode(random *rand.Rand) {
	name := nodeNames[random.IntN(len(nodeNames))]
	node := f.nodes[name]
	switch choice := random.IntN(5); {
	case node == nil:
		f.nodes[name] = newNode(name, 2+random.IntN(6))
		f.tell("node %s comes", name)
	case choice == 0:
		f.tell("node %s goes", name)
		delete(f.nodes, name)
		f.clear(name)
	case choice < 3:
		changed := node.DeepCopy()
		changed.Spec.Unschedulable = !changed.Spec.Unschedulable
		f.nodes[name] = changed
		f.tell("node %s is cordoned: %v", name, changed.Spec.Unschedulable)
	case choice == 3:
		// Pods that run on a node stay if it gets smaller.
		changed := newNode(name, max(2+random.IntN(6), int(f.usedOf(boundTo)[name])))
		f.nodes[name] = changed
		f.tell("node %s has %s CPUs", name, changed.Status.Allocatable.Cpu())
	default:
		changed := node.DeepCopy()
		ready := &changed.Status.Conditions[0]
		ready.LastTransitionTime = metav1.NewTime(f.now.Add(f.clocks.node))
		if ready.Status = corev1.ConditionTrue; conditions.IsNodeReady(node) {
			ready.Status = corev1.ConditionFalse
		}
		f.nodes[name] = changed
		f.tell("node %s is ready: %s", name, ready.Status)
	}
}

// clear removes the pods of a node that is gone.
func (f *fleet) clear(node string) {
	for _, w := range slices.Concat(f.worlds, f.gone) {
		if w == nil {
			continue
		}
		maps.DeleteFunc(w.pods, func(_ string, pod *corev1.Pod) bool { return pod.Spec.NodeName == node && !podstate.Finished(pod) })
	}
}

// cpusOf returns what a pod requests.
func cpusOf(pod *corev1.Pod) (cpus int64) {
	for i := range pod.Spec.Containers {
		cpus += pod.Spec.Containers[i].Resources.Requests.Cpu().Value()
	}
	return cpus
}

// usedOf returns what pods that have not ended request, by the node that a function returns. A pod of a finished job that waits
// is promised nothing.
func (f *fleet) usedOf(nodeOf func(*corev1.Pod) string) map[string]int64 {
	used := map[string]int64{}
	for _, w := range slices.Concat(f.worlds, f.gone) {
		if w == nil {
			continue
		}
		for _, pod := range w.pods {
			if !podstate.Finished(pod) && (pod.Spec.NodeName != "" || !state.IsFinished(&w.job.Status)) {
				used[nodeOf(pod)] += cpusOf(pod)
			}
		}
	}
	return used
}

func boundTo(pod *corev1.Pod) string { return pod.Spec.NodeName }

// fits reports whether the scheduler binds a pod to a node.
func (f *fleet) fits(pod *corev1.Pod, name string) bool {
	node := f.nodes[name]
	return node != nil && !node.Spec.Unschedulable && conditions.IsNodeReady(node) &&
		f.usedOf(boundTo)[name]+cpusOf(pod) <= node.Status.Allocatable.Cpu().Value()
}

// waits makes the scheduler say that a pod has no node.
func (w *world) waits(pod *corev1.Pod) {
	if conditions.OfPod(pod, corev1.PodScheduled) == nil && podstate.Phase(pod) == corev1.PodPending {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/3 nodes are available: 3 Insufficient cpu.", LastTransitionTime: metav1.NewTime(w.by(w.clocks.api)),
		})
	}
}

// settlePlaces heals all nodes, and lets the allocator and the operators act until nothing changes.
func (f *fleet) settlePlaces() {
	for i, name := range nodeNames {
		cpus := 2 + 2*i
		if before := f.nodes[name]; before != nil {
			cpus = int(before.Status.Allocatable.Cpu().Value())
		}
		f.nodes[name] = newNode(name, cpus)
	}
	for range 3 {
		// A node is excluded for half an hour after a pod has waited for it in vain.
		f.now = f.now.Add(35 * time.Minute)
		f.untilStill()
	}
	f.checkPlaces()
	f.nodes["big"] = newNode("big", 100)
	f.untilStill()
}

// untilStill lets the allocator and the operators act until nothing changes.
func (f *fleet) untilStill() {
	for range 60 {
		isChanged := f.advance(nil)
		if !f.allocateAnew() && !isChanged {
			return
		}
	}
	f.t.Fatalf("the allocator and the operators come to no rest")
}

// advance reconciles all jobs but one, runs their pods, and reports whether anything has changed.
func (f *fleet) advance(without *world) (isChanged bool) {
	for _, w := range f.worlds {
		if w == nil || w == without {
			continue
		}
		w.allAcknowledge()
		w.resync()
		isChanged = w.step() || isChanged
		isChanged = w.reap() || isChanged
		for _, name := range w.podNames() {
			w.toRun(name)
		}
	}
	return isChanged
}

// makesRoom lets the allocator decide. If it moves jobs, the others make room for one. It reports whether any was moved.
func (f *fleet) makesRoom(w *world) bool {
	if !f.allocateAnew() {
		return false
	}
	for range 20 {
		if !f.advance(w) {
			break
		}
	}
	return true
}

// checkPlaces checks that no node has more than it can hold, that each placed pod could start, and that no job waits for what is
// idle.
func (f *fleet) checkPlaces() {
	used, idle := f.usedOf(placements.PlacedOn), int64(0)
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		left := f.nodes[name].Status.Allocatable.Cpu().Value() - used[name]
		if idle += left; left < 0 {
			f.t.Fatalf("the pods that are placed on node %s request %d CPUs more than it has", name, -left)
		}
	}
	waiting := f.countWaiting()
	for number, w := range f.worlds {
		if w == nil || !placements.WantsPlace(w.job) {
			continue
		}
		for _, name := range w.podNames() {
			if pod := w.pods[name]; placements.PlacedOn(pod) != "" && pod.Spec.NodeName == "" {
				f.t.Fatalf("job %d: %s cannot start on node %s", number, outlinePod(pod), placements.PlacedOn(pod))
			}
		}
		// By the policy fit a job that waits may reserve nodes.
		if least := leastOf(w.job); (waiting == 1 || f.policy != allocator.PolicyFit) && len(w.job.Status.Allocation) == 0 && least <= idle && least > 0 {
			f.t.Fatalf("job %d waits for %d CPUs, and %d are idle: %s", number, least, idle, fmt.Sprint(conditions.Find(&w.job.Status, v2alpha1.ConditionAllocated)))
		}
	}
}

// countWaiting returns the number of jobs that wait for nodes.
func (f *fleet) countWaiting() int {
	waiting := 0
	for _, w := range f.worlds {
		if w != nil && placements.WantsPlace(w.job) && len(w.job.Status.Allocation) == 0 {
			waiting++
		}
	}
	return waiting
}

// leastOf returns the CPUs that a job needs at least. Each replica requests one.
func leastOf(job *v2alpha1.DIJob) (cpus int64) {
	elastic, least, _ := sizing.Range(job)
	for i := range job.Spec.Tasks {
		if i == elastic {
			cpus += int64(least)
		} else {
			cpus += int64(sizing.Count(job, i))
		}
	}
	return cpus
}

// mayHave reports whether a job may have a number of replicas. Its user resizes it otherwise.
func mayHave(job *v2alpha1.DIJob, size int) bool {
	_, least, most := sizing.Range(job)
	fewest := leastOf(job)
	return int64(size) >= fewest && int64(size) <= fewest+int64(most-least)
}
