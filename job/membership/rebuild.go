// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Remains are the pods of a job without a list: the list was lost, or an earlier release, which had
// no lists, created the pods.
type Remains struct {
	// Job is the name of the job.
	Job string
	// Pods are all pods of the job.
	Pods []*corev1.Pod
	// GPU is the resource that counts GPUs.
	GPU corev1.ResourceName
	// LearnerGPUs are the GPUs of the job's learner template. An aggregator without DDP learners
	// has them.
	LearnerGPUs int32
}

// Spec returns the list that follows from the pods, without the job's UID.
//
// A pod that names its slot is a member if it is live, or if it has failed and must be replaced. An
// aggregator is one member together with its DDP learners. Other pods that a coordinator may know
// are retained: those that have succeeded, are terminating or were replaced, and aggregators whose
// number of GPUs is unknown.
func (r Remains) Spec() v2alpha1.MembershipSpec {
	var spec v2alpha1.MembershipSpec
	at := map[string]int{}
	for _, pod := range r.heads() {
		member, stands := r.member(pod)
		index, known := at[member.Slot]
		switch {
		case !stands && isRetained(pod):
			spec.RetainedPods = append(spec.RetainedPods, v2alpha1.RetainedPod{
				Task: taskOf(pod), PodName: pod.Name, Port: names.DIPort(&pod.Spec, names.RoleOf(pod)),
			})
		case !stands:
		case known:
			// If two pods have one slot, the younger replaces the other.
			spec.RetainedPods = append(spec.RetainedPods, v2alpha1.RetainedPod{Task: member.Task, PodName: spec.Members[index].PodName})
			spec.Members[index] = member
		default:
			at[member.Slot] = len(spec.Members)
			spec.Members = append(spec.Members, member)
		}
	}
	if len(spec.Members)+len(spec.RetainedPods) > 0 {
		spec.CoordinatorInstance = r.coordinatorInstance()
	}
	return spec
}

// Stands reports whether a pod would be a member if it named a slot.
func (r Remains) Stands(pod *corev1.Pod) bool {
	if !isHead(pod) || podstate.Terminating(pod) || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return names.RoleOf(pod) != names.ReplicaTypeAggregator || r.LearnerGPUs > 1 || len(r.learnersOf(pod)) > 0
}

// heads returns the pods that are advertised to a coordinator, oldest first.
func (r Remains) heads() []*corev1.Pod {
	var heads []*corev1.Pod
	for _, pod := range r.Pods {
		if isHead(pod) {
			heads = append(heads, pod)
		}
	}
	slices.SortFunc(heads, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return heads
}

// member returns the member that a pod represents, and whether there is one.
func (r Remains) member(pod *corev1.Pod) (v2alpha1.Member, bool) {
	slot := pod.Annotations[names.AnnotationSlot]
	if slot == "" || !r.Stands(pod) {
		return v2alpha1.Member{}, false
	}
	member := v2alpha1.Member{Slot: slot, Task: taskOf(pod), PodName: pod.Name}
	if names.RoleOf(pod) != names.ReplicaTypeAggregator {
		member.Resources = r.resources(pod)
		return member, true
	}
	unit := r.unitOf(pod)
	member.DDPGPUs, member.DDPPodNames, member.Resources = unit.gpus, unit.recordedNames(), unit.resources
	member.Resources.GPUs = resource.NewQuantity(int64(sum(unit.gpus)), resource.DecimalSI)
	return member, len(unit.gpus) > 0
}

// resources returns the resource limits of a pod's main container.
func (r Remains) resources(pod *corev1.Pod) v2alpha1.MemberResources {
	limits := names.MainContainerOf(pod).Resources.Limits
	of := func(name corev1.ResourceName) *resource.Quantity {
		quantity, ok := limits[name]
		if !ok {
			return nil
		}
		return &quantity
	}
	return v2alpha1.MemberResources{CPUs: of(corev1.ResourceCPU), Memory: of(corev1.ResourceMemory), GPUs: of(r.GPU)}
}

// coordinatorInstance returns the instance of the existing coordinator. Without one it returns
// NoCoordinatorInstance, which differs from any instance that sends requests later.
func (r Remains) coordinatorInstance() string {
	for _, pod := range r.Pods {
		if pod.Name == names.CoordinatorPod(r.Job) {
			return Instance(pod)
		}
	}
	return v2alpha1.NoCoordinatorInstance
}

// isRetained reports whether the URL of a pod without a member is still advertised. A live pod that
// names no slot is foreign, unless it is an aggregator that could not get a slot.
func isRetained(pod *corev1.Pod) bool {
	return !podstate.Active(pod) || names.RoleOf(pod) == names.ReplicaTypeAggregator
}

// isHead reports whether a pod is advertised to a coordinator.
func isHead(pod *corev1.Pod) bool {
	switch names.RoleOf(pod) {
	case names.ReplicaTypeCollector, names.ReplicaTypeLearner, names.ReplicaTypeAggregator:
		return true
	case names.ReplicaTypeCoordinator, names.ReplicaTypeDDPLearner:
	}
	return false
}

func taskOf(pod *corev1.Pod) v2alpha1.TaskType {
	if names.RoleOf(pod) == names.ReplicaTypeCollector {
		return v2alpha1.TaskTypeCollector
	}
	return v2alpha1.TaskTypeLearner
}

func sum(counts []int32) int32 {
	var total int32
	for _, count := range counts {
		total += count
	}
	return total
}
