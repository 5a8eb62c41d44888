// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// setResources sets the resources that a member requests, as request and as limit. A resource that
// is not requested, or requested as 0, keeps the template's value.
func setResources(container *corev1.Container, asked v2alpha1.MemberResources, gpu corev1.ResourceName) {
	setResource(container, corev1.ResourceCPU, asked.CPUs)
	setResource(container, corev1.ResourceMemory, asked.Memory)
	setResource(container, gpu, asked.GPUs)
}

func setResource(container *corev1.Container, name corev1.ResourceName, quantity *resource.Quantity) {
	if quantity == nil || quantity.IsZero() {
		return
	}
	if container.Resources.Requests == nil {
		container.Resources.Requests = corev1.ResourceList{}
	}
	if container.Resources.Limits == nil {
		container.Resources.Limits = corev1.ResourceList{}
	}
	container.Resources.Requests[name] = quantity.DeepCopy()
	container.Resources.Limits[name] = quantity.DeepCopy()
}
