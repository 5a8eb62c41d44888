// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/history/observe"
)

func TestAContainerForInitializationCountsUntilAnotherOneHasRun(t *testing.T) {
	t.Parallel()
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	pod := &corev1.Pod{}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: failed}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}}
	if got := containers(observe.Endings(pod)); !slices.Equal(got, []string{"init"}) {
		t.Errorf("%v ended", got)
	}
	pod.Status.ContainerStatuses[0].State = failed
	if got := containers(observe.Endings(pod)); !slices.Equal(got, []string{"main"}) {
		t.Errorf("%v ended", got)
	}
}

func containers(endings []observe.Ending) (names []string) {
	for _, ending := range endings {
		names = append(names, ending.Container)
	}
	return names
}
