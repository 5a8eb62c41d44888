// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAPodThatIsNeitherReadyNorFinishedHasAWordAndASentence(t *testing.T) {
	gates := func(named ...string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.NodeName = ""
			for _, name := range named {
				pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
			}
		}
	}
	for name, tc := range map[string]struct {
		status   string
		edit     func(*corev1.Pod)
		wantWord string
		wantText string
	}{
		"a scheduling gate": {
			status: `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated}]}`, edit: gates("example.com/wait"),
			wantWord: v2alpha1.ReasonSchedulingGated, wantText: "waits behind scheduling gate example.com/wait",
		},
		"many gates": {
			status: `{phase: Pending}`, edit: gates("a/a", "b/b", "c/c", "d/d", "e/e"),
			wantWord: v2alpha1.ReasonSchedulingGated, wantText: "waits behind scheduling gate a/a, b/b, c/c and 2 more",
		},
		"no scheduler yet": {
			status: `{phase: Pending}`, edit: gates(),
			wantText: `scheduler "default-scheduler" has not assigned it to a node yet`,
		},
		"a node that is slow": {status: `{phase: Pending}`, wantText: "node node-1 has not started it yet"},
		"an image that is pulled for long": {
			status:   `{phase: Pending, containerStatuses: [{name: di-container, state: {waiting: {reason: ContainerCreating}}}]}`,
			wantText: "node node-1 pulls the image of container di-container, or creates it",
		},
		"an init container that takes long": {
			status:   `{phase: Pending, initContainerStatuses: [{name: fetch, state: {running: {}}}], containerStatuses: [{name: di-container, state: {waiting: {reason: PodInitializing}}}]}`,
			wantText: "init container fetch runs, and the other containers wait for it",
		},
		"a startup probe": {
			status:   `{phase: Running, containerStatuses: [{name: di-container, started: false, state: {running: {}}}]}`,
			wantText: "container di-container runs and has not passed its startup probe; see the events of the pod",
		},
		"a readiness probe": {
			status:   `{phase: Running, conditions: [{type: Ready, status: "False", reason: ContainersNotReady, message: "containers with unready status: [di-container]"}], containerStatuses: [{name: di-container, started: true, state: {running: {}}}]}`,
			wantText: "container di-container runs and does not pass its readiness probe; see the events of the pod",
		},
		"a native sidecar beside it": {
			status:   `{phase: Running, initContainerStatuses: [{name: proxy, started: true, state: {running: {}}}], containerStatuses: [{name: di-container, started: true, state: {running: {}}}]}`,
			wantText: "container di-container runs and does not pass its readiness probe; see the events of the pod",
		},
		"a readiness gate": {
			status:   `{phase: Running, conditions: [{type: Ready, status: "False", reason: ReadinessGatesNotReady, message: "the status of pod readiness gate \"x/y\" is not \"True\", but False"}], containerStatuses: [{name: di-container, ready: true, state: {running: {}}}]}`,
			wantText: "is not ready: the status of pod readiness gate 'x/y' is not 'True', but False",
		},
		"a container that is restarted": {
			status:   `{phase: Running, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 1}}}]}`,
			wantText: "container di-container has exited (exit code 1)",
		},
		"a pod that ends slowly": {
			status: `{phase: Running}`,
			edit: func(pod *corev1.Pod) {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(noon.Add(9*time.Minute))), ptr.To(int64(600))
			},
			wantText: "is terminating, with a grace period of 10m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podIn(t, tc.status)
			if tc.edit != nil {
				tc.edit(pod)
			}
			if tc.wantWord == "" {
				tc.wantWord = v2alpha1.ReasonNotReady
			}
			wait, waits := Wait(pod)
			expect.Equal(t, "word and text", []string{tc.wantWord, tc.wantText}, []string{wait.Reason, wait.Message})
			active, _ := wait.Active(noon)
			early, in := wait.Active(noon.Add(-time.Second))
			expect.Equal(t, "waits, active after a minute, before that, and then after", []any{true, true, false, time.Second}, []any{waits, active, early, in})
		})
	}
}

func TestAReadyOrFinishedPodWaitsForNothing(t *testing.T) {
	for _, status := range []string{
		`{phase: Running, conditions: [{type: Ready, status: "True"}]}`, `{phase: Succeeded}`, `{phase: Failed}`,
	} {
		if wait, waits := Wait(podIn(t, status)); waits {
			t.Errorf("%s waits: %+v", status, wait)
		}
	}
}
