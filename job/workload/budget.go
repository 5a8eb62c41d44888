// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"maps"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Budget builds the PodDisruptionBudget over all pods of a job. Version is that of the job in its owner
// reference. Kubernetes reads no scale of a job for a whole number of minAvailable. A pod that is not ready
// counts as unavailable already, so it may be evicted: a replica that crashes must not block a drain.
func Budget(job *v2alpha1.DIJob, version string, minAvailable int32) *policyv1.PodDisruptionBudget {
	pods := names.WorkerJobLabels(job.Name)
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		pods = names.JobLabels(job.Name)
	}
	labels := maps.Clone(pods)
	labels[names.LabelOperator] = names.ControllerName
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*Owner(job, version)},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               ptr.To(intstr.FromInt32(minAvailable)),
			Selector:                   &metav1.LabelSelector{MatchLabels: pods},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// MinAvailable returns how many of a job's desired replicas must be available after an eviction. Percentages
// round up, as Kubernetes rounds those of a PodDisruptionBudget. It returns an error for a value that is
// neither a number nor a percentage.
func MinAvailable(disruption *v2alpha1.Disruption, replicas int32) (int32, error) {
	if disruption.MinAvailable != nil {
		least, err := scaled("minAvailable", disruption.MinAvailable, replicas)
		return min(least, replicas), err
	}
	most, err := scaled("maxUnavailable", disruption.MaxUnavailable, replicas)
	return max(replicas-most, 0), err
}

func scaled(field string, value *intstr.IntOrString, replicas int32) (int32, error) {
	if value == nil {
		return 0, errors.New("spec.disruption: must have exactly one of maxUnavailable and minAvailable, not none")
	}
	count, err := intstr.GetScaledValueFromIntOrPercent(value, int(replicas), true)
	if err != nil || count < 0 {
		return 0, fmt.Errorf("spec.disruption.%s: %s: must be a number from 0 or a percentage from 0%% to 100%%", field, value.String())
	}
	return int32(min(count, int(replicas))), nil
}
