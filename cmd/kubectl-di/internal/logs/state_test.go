// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestWhatAPodTellsOfAContainer(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(id string, code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id, ExitCode: code}}
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		status *corev1.ContainerStatus
		want   state
	}{
		"no node yet":  {want: state{waiting: "waiting for a node"}},
		"it was never": {phase: corev1.PodFailed, want: state{isOver: true, waiting: "waiting for a node"}},
		"no image": {
			status: &corev1.ContainerStatus{State: waiting("ImagePullBackOff", "no such image")},
			want:   state{waiting: "ImagePullBackOff: no such image"},
		},
		"it runs":             {status: &corev1.ContainerStatus{State: running, ContainerID: "a"}, want: state{instance: "a", isRunning: true}},
		"it runs again":       {status: &corev1.ContainerStatus{State: running, ContainerID: "b", RestartCount: 1, LastTerminationState: ended("a", 1)}, want: state{instance: "b", previous: "a", isRunning: true, restarts: 1}},
		"it is to be started": {status: &corev1.ContainerStatus{State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended("a", 1)}, want: state{instance: "a", waiting: "CrashLoopBackOff"}},
		"it ended for good":   {policy: corev1.RestartPolicyNever, status: &corev1.ContainerStatus{State: ended("a", 1)}, want: state{instance: "a", isOver: true}},
		"it ended well":       {policy: corev1.RestartPolicyOnFailure, status: &corev1.ContainerStatus{State: ended("a", 0)}, want: state{instance: "a", isOver: true}},
		"it failed":           {policy: corev1.RestartPolicyOnFailure, status: &corev1.ContainerStatus{State: ended("a", 1)}, want: state{instance: "a"}},
		"its pod ended":       {policy: corev1.RestartPolicyAlways, phase: corev1.PodSucceeded, status: &corev1.ContainerStatus{State: ended("a", 0)}, want: state{instance: "a", isOver: true}},
		"nobody has its id":   {status: &corev1.ContainerStatus{State: running, RestartCount: 2, LastTerminationState: ended("", 1)}, want: state{instance: "#2", previous: "#1", isRunning: true, restarts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tc.policy, Containers: []corev1.Container{{Name: "c"}}}}
			pod.Status.Phase = tc.phase
			if tc.status != nil {
				tc.status.Name = "c"
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{*tc.status}
			}
			if diff := cmp.Diff(tc.want, stateOf(pod, "c"), cmp.AllowUnexported(state{})); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnInitContainerIsStartedAgainByItsOwnPolicy(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		InitContainers: []corev1.Container{
			{Name: "first"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		},
	}}
	if isStartedAgain(pod, "first", 1) || !isStartedAgain(pod, "sidecar", 0) {
		t.Error("a sidecar alone is started again where the pod's policy is Never")
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if isStartedAgain(pod, "first", 0) || !isStartedAgain(pod, "first", 1) {
		t.Error("an init container is started again where it failed")
	}
}
