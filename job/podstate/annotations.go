// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Unranked is the rank of a replica that has none yet.
const Unranked int32 = -1

// Attempt returns the count of restarts that the pod was created with.
func Attempt(pod *corev1.Pod) int32 {
	return AnnotatedNumber(pod, names.AnnotationAttempt, 0)
}

// PlausibleCount returns the count of a pod's annotation. It returns 0 for a count that is too far
// ahead of the recorded one to come from this operator.
func PlausibleCount(count, recorded int32) int32 {
	if count > limits.Sum(recorded, limits.RestartsAhead) {
		return 0
	}
	return count
}

// Rank returns the rank that a pod was created with, Unranked if the annotation has no valid rank.
func Rank(pod *corev1.Pod) int32 {
	if rank := AnnotatedNumber(pod, names.AnnotationRank, Unranked); rank < limits.Replicas {
		return rank
	}
	return Unranked
}

// AnnotatedNumber returns the number in an annotation of a pod. It returns otherwise if there is no
// number, or a negative one.
func AnnotatedNumber(pod *corev1.Pod, annotation string, otherwise int32) int32 {
	value, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || value < 0 {
		return otherwise
	}
	return int32(value)
}

// Reschedule returns the count of reschedules that the pod was created with.
func Reschedule(pod *corev1.Pod) int32 {
	return AnnotatedNumber(pod, names.AnnotationReschedule, 0)
}

// ReplicaRestarts returns the count of restarts of its replica alone that the pod
// was created with.
func ReplicaRestarts(pod *corev1.Pod) int32 {
	return AnnotatedNumber(pod, names.AnnotationReplicaRestart, 0)
}
