// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// maxGPUs bounds the GPUs of one unit.
const maxGPUs = limits.GPUs

// unit is the desired DDP learners of one aggregator, in rank order.
type unit struct {
	job, aggregator string
	gpus            []int32
	pods            []string
	// next is the first rank without a pod.
	next      int32
	resources v2alpha1.MemberResources
}

// unitOf returns the unit of an aggregator: its existing and its missing DDP learners. Missing
// ranks are split into pods of the size of the largest existing one. If none exists, they are one
// pod, because the GPUs of a node are unknown.
func (r Remains) unitOf(aggregator *corev1.Pod) unit {
	u := unit{job: r.Job, aggregator: aggregator.Name}
	learners := r.learnersOf(aggregator)
	if len(learners) == 0 {
		u.fill(min(r.LearnerGPUs, maxGPUs), maxGPUs)
		return u
	}
	var world, largest int32
	for i := range learners {
		world = max(world, learners[i].world, learners[i].start+learners[i].gpus)
		largest = max(largest, learners[i].gpus)
	}
	u.resources = r.resources(learners[0].pod)
	for i := range learners {
		// Skip a pod whose ranks another pod has.
		if learners[i].start >= u.next {
			u.fill(learners[i].start, largest)
			u.add(learners[i].pod.Name, learners[i].gpus)
		}
	}
	u.fill(min(world, maxGPUs), largest)
	return u
}

func (u *unit) add(pod string, gpus int32) {
	u.pods = append(u.pods, pod)
	u.gpus = append(u.gpus, gpus)
	u.next += gpus
}

// fill adds missing pods for the ranks before end.
func (u *unit) fill(end, largest int32) {
	for u.next < end {
		u.add(DDPPodName(u.job, u.aggregator, len(u.pods)), min(largest, end-u.next))
	}
}

// recordedNames returns the names of the pods to record; nil if they follow from the aggregator's
// name.
func (u *unit) recordedNames() []string {
	for index, pod := range u.pods {
		if pod != DDPPodName(u.job, u.aggregator, index) {
			return u.pods
		}
	}
	return nil
}

// ddpLearner is a DDP learner pod with the ranks in its environment.
type ddpLearner struct {
	pod                *corev1.Pod
	start, gpus, world int32
}

// learnersOf returns the DDP learners that an aggregator owns, by rank. Among those with the same
// ranks, a live one comes first, then the youngest. Finished pods count, because they cause the
// replacement of the whole unit.
func (r Remains) learnersOf(aggregator *corev1.Pod) []ddpLearner {
	var learners []ddpLearner
	for _, pod := range r.Pods {
		if names.RoleOf(pod) != names.ReplicaTypeDDPLearner || !IsOwnedBy(pod, aggregator) {
			continue
		}
		learner := ddpLearner{
			pod:   pod,
			start: number(pod, names.EnvStartRank),
			gpus:  number(pod, names.EnvLocalWorldSize),
			world: number(pod, names.EnvWorldSize),
		}
		if learner.gpus > 0 && learner.start+learner.gpus <= maxGPUs {
			learners = append(learners, learner)
		}
	}
	slices.SortFunc(learners, func(a, b ddpLearner) int {
		return cmp.Or(
			cmp.Compare(a.start, b.start),
			-compareBool(podstate.Active(a.pod), podstate.Active(b.pod)),
			-a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
			cmp.Compare(a.pod.Name, b.pod.Name),
		)
	})
	return learners
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// IsOwnedBy reports whether a pod is among the owners of another.
func IsOwnedBy(pod, owner *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(reference metav1.OwnerReference) bool {
		return reference.UID == owner.UID
	})
}

// number parses a variable of a pod's main container as a number of GPUs, 0 if it is none. The last
// of several definitions counts, as in the container.
func number(pod *corev1.Pod, name string) int32 {
	var value string
	for _, variable := range names.MainContainerOf(pod).Env {
		if variable.Name == name {
			value = variable.Value
		}
	}
	parsed, err := strconv.ParseUint(value, 10, 31)
	if err != nil || parsed > maxGPUs {
		return 0
	}
	return int32(parsed)
}
