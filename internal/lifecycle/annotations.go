// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// attemptOf returns the count of restarts that the pod was created with.
func attemptOf(pod *corev1.Pod) int32 {
	return annotatedNumber(pod, names.AnnotationAttempt, 0)
}

// believed returns the count of a pod's annotation, and 0, as where there is none, for
// one that is too far ahead of the recorded one to come from this operator.
func believed(count, recorded int32) int32 {
	if count > limits.Sum(recorded, limits.RestartsAhead) {
		return 0
	}
	return count
}

// rankOf returns the rank that a pod was created with, unranked where it says none
// that a job can have.
func rankOf(pod *corev1.Pod) int32 {
	if rank := annotatedNumber(pod, names.AnnotationRank, unranked); rank < limits.Replicas {
		return rank
	}
	return unranked
}

func annotatedNumber(pod *corev1.Pod, annotation string, otherwise int32) int32 {
	value, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || value < 0 {
		return otherwise
	}
	return int32(value)
}
