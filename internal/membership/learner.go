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

// LearnerGPUs returns the GPUs that a learner gets: those asked for, and where
// none are asked for those of its template.
func LearnerGPUs(asked v2alpha1.MemberResources, template *corev1.PodSpec, gpu corev1.ResourceName) int32 {
	if asked.GPUs != nil && asked.GPUs.Sign() > 0 {
		return count(*asked.GPUs)
	}
	for i := range template.Containers {
		if template.Containers[i].Name != names.Container {
			continue
		}
		resources := template.Containers[i].Resources
		if limit, found := resources.Limits[gpu]; found {
			return count(limit)
		}
		return count(resources.Requests[gpu])
	}
	return 0
}

// NodeGPUs returns the allocatable GPUs of a node.
func NodeGPUs(allocatable corev1.ResourceList, gpu corev1.ResourceName) int32 {
	return count(allocatable[gpu])
}

// count returns a quantity as a number of whole things.
func count(quantity resource.Quantity) int32 {
	return int32(min(quantity.Value(), math.MaxInt32))
}
