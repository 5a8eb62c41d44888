// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestContainersDecideReadinessWithoutTheCondition(t *testing.T) {
	container := func(ready bool) corev1.ContainerStatus { return corev1.ContainerStatus{Ready: ready} }
	condition := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
	for name, tc := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"nothing known":                       {corev1.PodStatus{Phase: corev1.PodRunning}, false},
		"all containers ready":                {corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{container(true), container(true)}}, true},
		"one container not ready":             {corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{container(true), container(false)}}, false},
		"containers of a pod that has ended":  {corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{container(true)}}, false},
		"a condition against the containers":  {corev1.PodStatus{Phase: corev1.PodRunning, Conditions: condition(corev1.ConditionFalse), ContainerStatuses: []corev1.ContainerStatus{container(true)}}, false},
		"a condition in spite of a container": {corev1.PodStatus{Phase: corev1.PodRunning, Conditions: condition(corev1.ConditionTrue), ContainerStatuses: []corev1.ContainerStatus{container(false)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "ready", tc.want, ReportsReady(&corev1.Pod{Status: tc.status}))
		})
	}
}
