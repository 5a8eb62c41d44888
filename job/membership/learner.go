// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// LearnerGPUs returns the GPUs of a learner: the requested ones, or those of its template if the
// request has none.
func LearnerGPUs(asked v2alpha1.MemberResources, template *corev1.PodSpec, gpu corev1.ResourceName) int32 {
	switch {
	case asked.GPUs != nil && asked.GPUs.Sign() > 0:
		return count(*asked.GPUs)
	case len(template.Containers) == 0:
		return 0
	}
	return gpusOf(names.MainContainer(template), gpu)
}

// PodGPUs returns the GPUs of a learner's existing pod.
func PodGPUs(pod *corev1.Pod, gpu corev1.ResourceName) int32 {
	if len(pod.Spec.Containers) == 0 {
		return 0
	}
	return gpusOf(names.MainContainerOf(pod), gpu)
}

func gpusOf(container *corev1.Container, gpu corev1.ResourceName) int32 {
	if limit, found := container.Resources.Limits[gpu]; found {
		return count(limit)
	}
	return count(container.Resources.Requests[gpu])
}

// NodeGPUs returns the allocatable GPUs of a node.
func NodeGPUs(allocatable corev1.ResourceList, gpu corev1.ResourceName) int32 {
	return count(allocatable[gpu])
}

// count returns a quantity rounded up to an int32.
func count(quantity resource.Quantity) int32 {
	return int32(min(quantity.Value(), math.MaxInt32))
}
