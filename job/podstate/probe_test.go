// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAContainerThatItsProbeKilledHasFailed(t *testing.T) {
	event := func(reason, container, message string) corev1.Event {
		about := corev1.ObjectReference{UID: "pod-uid", FieldPath: "spec.containers{" + container + "}"}
		return corev1.Event{Reason: reason, Message: message, InvolvedObject: about}
	}
	const ended = `{phase: Succeeded, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 0, reason: Completed, message: saved}}}]}`
	tests := map[string]struct {
		events []corev1.Event
		want   string
	}{
		"a container that ended by itself": {nil, ""},
		"a probe that failed once":         {[]corev1.Event{event("Unhealthy", "di-container", "Liveness probe failed: no")}, ""},
		"a liveness probe": {
			[]corev1.Event{event("Unhealthy", "di-container", "Liveness probe failed: dial tcp: refused"), event("Killing", "di-container", "Stopping container di-container")},
			"the kubelet killed container di-container: Liveness probe failed: dial tcp: refused",
		},
		"a startup probe": {
			[]corev1.Event{event("Killing", "di-container", "Container di-container failed startup probe"), event("Unhealthy", "di-container", "Startup probe failed: no")},
			"the kubelet killed container di-container: Startup probe failed: no",
		},
		"a readiness probe beside the kill": {
			[]corev1.Event{event("Unhealthy", "di-container", "Readiness probe failed: no"), event("Killing", "di-container", "Stopping container di-container")},
			"the kubelet killed container di-container: its liveness or startup probe failed",
		},
		"another container": {[]corev1.Event{event("Killing", "proxy", "Stopping container proxy")}, ""},
		"another pod":       {[]corev1.Event{{Reason: "Killing", InvolvedObject: corev1.ObjectReference{UID: "other", FieldPath: "spec.containers{di-container}"}}}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "kill", tc.want, ProbeKill(podIn(t, ended), tc.events))
		})
	}
	killed := AsKilledByProbe(podIn(t, ended), "the kubelet killed container di-container: Liveness probe failed: no")
	want := &v2alpha1.LastFailure{
		Pod: "job-collector-a", ExitCode: ptr.To(int32(0)), Reason: v2alpha1.ReasonProbeFailed, Time: ptr.To(metav1.NewTime(noon)),
		Message: "the kubelet killed container di-container: Liveness probe failed: no\nsaved",
	}
	expect.Equal(t, "failure", want, Failure(killed, metav1.NewTime(noon)))
	expect.Equal(t, "reason", v2alpha1.ReasonProbeFailed, FailureReason(killed))
	expect.Equal(t, "cause", " (exit code 0, ProbeFailed)", FailureCause(killed))
}

func TestOnlySomeEndsMayBeThoseOfAProbe(t *testing.T) {
	for status, want := range map[string]bool{
		`{phase: Succeeded, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 0}}}]}`:                                true,
		`{phase: Failed, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 137, reason: Error}}}]}`:                  true,
		`{phase: Failed, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 143, reason: Error}}}]}`:                  true,
		`{phase: Failed, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 1}}}]}`:                                   false,
		`{phase: Failed, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]}`:              false,
		`{phase: Failed, reason: Evicted, containerStatuses: [{name: di-container, state: {terminated: {exitCode: 137, reason: Error}}}]}`: false,
		`{phase: Running, containerStatuses: [{name: di-container, state: {running: {}}}]}`:                                                false,
	} {
		pod := podIn(t, status)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		expect.Equal(t, status, want, MayBeKilledByProbe(pod))
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		expect.Equal(t, "a pod whose kubelet restarts it: "+status, false, MayBeKilledByProbe(pod))
	}
}
