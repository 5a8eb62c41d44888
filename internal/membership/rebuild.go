// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// FromPods returns the members that a job's pods stand for, oldest first, for
// a list that was lost. Pods that name no slot, are being deleted or have
// ended stand for none.
func FromPods(job string, pods []*corev1.Pod, gpu corev1.ResourceName) []v2alpha1.Member {
	live := make(map[string]*corev1.Pod, len(pods))
	var heads []*corev1.Pod
	for _, pod := range pods {
		if pod.Annotations[names.AnnotationSlot] == "" || !pod.DeletionTimestamp.IsZero() ||
			pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		live[pod.Name] = pod
		if roleOf(pod) != names.ReplicaTypeDDPLearner {
			heads = append(heads, pod)
		}
	}
	slices.SortFunc(heads, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})

	seen := make(map[string]bool, len(heads))
	var members []v2alpha1.Member
	for _, pod := range heads {
		member, ok := memberOf(job, pod, live, gpu)
		if !ok || seen[member.Slot] {
			continue
		}
		seen[member.Slot] = true
		members = append(members, member)
	}
	return members
}

// memberOf returns the member that a pod stands for; for an aggregator together
// with its DDP learners, false where it has none.
func memberOf(job string, pod *corev1.Pod, live map[string]*corev1.Pod, gpu corev1.ResourceName) (v2alpha1.Member, bool) {
	member := v2alpha1.Member{
		Slot:    pod.Annotations[names.AnnotationSlot],
		Task:    v2alpha1.TaskTypeLearner,
		PodName: pod.Name,
	}
	switch roleOf(pod) {
	case names.ReplicaTypeCollector:
		member.Task = v2alpha1.TaskTypeCollector
		member.Resources = resourcesOf(pod, gpu)
	case names.ReplicaTypeAggregator:
		for i := 0; ; i++ {
			learner, ok := live[DDPPodName(job, pod.Name, i)]
			if !ok {
				break
			}
			gpus, _ := strconv.ParseInt(environment(learner, names.EnvLocalWorldSize), 10, 32)
			member.DDPGPUs = append(member.DDPGPUs, int32(gpus))
			member.Resources = resourcesOf(learner, gpu)
		}
		member.Resources.GPUs = resource.NewQuantity(int64(sum(member.DDPGPUs)), resource.DecimalSI)
		return member, len(member.DDPGPUs) > 0
	default:
		member.Resources = resourcesOf(pod, gpu)
	}
	return member, true
}

// resourcesOf returns what a pod's main container asks for.
func resourcesOf(pod *corev1.Pod, gpu corev1.ResourceName) v2alpha1.MemberResources {
	limits := mainContainer(pod).Resources.Limits
	of := func(name corev1.ResourceName) *resource.Quantity {
		quantity, ok := limits[name]
		if !ok {
			return nil
		}
		return &quantity
	}
	return v2alpha1.MemberResources{CPUs: of(corev1.ResourceCPU), Memory: of(corev1.ResourceMemory), GPUs: of(gpu)}
}

func mainContainer(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == names.Container {
			return &pod.Spec.Containers[i]
		}
	}
	return &pod.Spec.Containers[0]
}

func environment(pod *corev1.Pod, name string) string {
	for _, variable := range mainContainer(pod).Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

func roleOf(pod *corev1.Pod) names.ReplicaType {
	return names.ReplicaType(pod.Labels[names.LabelReplicaType])
}

func sum(counts []int32) int32 {
	var total int32
	for _, count := range counts {
		total += count
	}
	return total
}
