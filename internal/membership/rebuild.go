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
	"opendilab.org/di-orchestrator/internal/podstate"
)

// Remains are what is left of a job's replicas where their list was lost, or
// where an earlier release made them, which had none.
type Remains struct {
	// Job is the name of the job.
	Job string
	// Pods are all pods of the job.
	Pods []*corev1.Pod
	// GPU is the resource that GPUs are asked for by.
	GPU corev1.ResourceName
	// LearnerGPUs are the GPUs of the job's learner template. They are those of
	// an aggregator that has no DDP learner yet to tell them.
	LearnerGPUs int32
}

// Spec returns the list that the pods stand for, but for the job that it is of.
//
// A member is made by a pod that names its slot and lives, or has failed and so
// is to be replaced; of an aggregator together with its DDP learners. The others
// that a coordinator may know linger: those that have succeeded, are being
// deleted or were replaced, and aggregators of which nothing tells how many GPUs
// they are to have.
func (r Remains) Spec() v2alpha1.MembershipSpec {
	var spec v2alpha1.MembershipSpec
	at := map[string]int{}
	for _, pod := range r.heads() {
		member, stands := r.member(pod)
		index, known := at[member.Slot]
		switch {
		case !stands && lingers(pod):
			spec.Lingering = append(spec.Lingering, v2alpha1.LingeringPod{
				Task: taskOf(pod), PodName: pod.Name, Port: names.DIPort(&pod.Spec, names.RoleOf(pod)),
			})
		case !stands:
		case known:
			// Of two pods of a slot the younger replaces the other.
			spec.Lingering = append(spec.Lingering, v2alpha1.LingeringPod{Task: member.Task, PodName: spec.Members[index].PodName})
			spec.Members[index] = member
		default:
			at[member.Slot] = len(spec.Members)
			spec.Members = append(spec.Members, member)
		}
	}
	if len(spec.Members)+len(spec.Lingering) > 0 {
		spec.Coordinator = r.container()
	}
	return spec
}

// Stands tells whether a pod would make a member if it named a slot.
func (r Remains) Stands(pod *corev1.Pod) bool {
	if !isHead(pod) || podstate.Terminating(pod) || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	return names.RoleOf(pod) != names.ReplicaTypeAggregator || r.LearnerGPUs > 1 || len(r.learnersOf(pod)) > 0
}

// heads returns the pods that a coordinator is told of, oldest first.
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

// member returns the member that a pod stands for, and whether it does.
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

// resources returns what a pod's main container asks for.
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

// container returns that of the coordinator there is.
func (r Remains) container() string {
	for _, pod := range r.Pods {
		if pod.Name == names.CoordinatorPod(r.Job) {
			return Container(pod)
		}
	}
	return goneContainer
}

// lingers reports whether the URL of a pod that stands for no member stays listed.
// An active pod without a slot is not one of ours, unless it is an aggregator, which
// may have none.
func lingers(pod *corev1.Pod) bool {
	return !podstate.Active(pod) || names.RoleOf(pod) == names.ReplicaTypeAggregator
}

// isHead tells whether a pod is a replica that a coordinator is told of.
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
