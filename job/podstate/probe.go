// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// A kubelet kills a container whose liveness or startup probe fails. The status of the pod does not have that,
// from Kubernetes 1.30 to 1.36: only Events do. A program that exits with 0 on SIGTERM seems to have succeeded.

// These are the kubelet's reasons of the Events of a container that fails its probes, and of one that is killed.
const (
	killing   = "Killing"
	unhealthy = "Unhealthy"
)

// MayBeKilledByProbe reports whether a pod ended as one may whose container was killed by the kubelet. If the
// kubelet kills for another reason than a probe, the pod has that reason, or is terminating.
func MayBeKilledByProbe(pod *corev1.Pod) bool {
	isOver := Finished(pod) || MainTermination(pod) != nil
	return isOver && !Terminating(pod) && pod.Status.Reason == "" && pod.Spec.RestartPolicy == corev1.RestartPolicyNever &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return isKillable(&status) })
}

// isKillable reports whether a container ended as after SIGTERM or SIGKILL: by itself, or by the signal.
func isKillable(status *corev1.ContainerStatus) bool {
	end := status.State.Terminated
	return end != nil && end.Reason != v2alpha1.ReasonOOMKilled && slices.Contains([]int32{0, 137, 143}, end.ExitCode)
}

// ProbeKill describes that the kubelet killed a container of a pod because of a probe, given Events about pods.
// It returns "" if no Event says so.
func ProbeKill(pod *corev1.Pod, events []corev1.Event) string {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if !isKillable(status) || !slices.ContainsFunc(events, func(event corev1.Event) bool { return isAbout(&event, pod, status.Name, killing) }) {
			continue
		}
		for _, probe := range []string{"Liveness", "Startup"} {
			at := slices.IndexFunc(events, func(event corev1.Event) bool {
				return isAbout(&event, pod, status.Name, unhealthy) && strings.HasPrefix(event.Message, probe+" probe ")
			})
			if at >= 0 {
				return fmt.Sprintf("the kubelet killed container %s: %s", status.Name, quotable(events[at].Message))
			}
		}
		return fmt.Sprintf("the kubelet killed container %s: its liveness or startup probe failed", status.Name)
	}
	return ""
}

func isAbout(event *corev1.Event, pod *corev1.Pod, container, reason string) bool {
	return event.Reason == reason && event.InvolvedObject.UID == pod.UID && event.InvolvedObject.FieldPath == "spec.containers{"+container+"}"
}

// AsKilledByProbe returns a pod as failed by a probe, with a description of that.
func AsKilledByProbe(pod *corev1.Pod, kill string) *corev1.Pod {
	failed := *pod
	failed.Status.Phase, failed.Status.Reason, failed.Status.Message = corev1.PodFailed, v2alpha1.ReasonProbeFailed, kill
	return &failed
}

// IsKilledByProbe reports whether AsKilledByProbe returned the pod.
func IsKilledByProbe(pod *corev1.Pod) bool { return pod.Status.Reason == v2alpha1.ReasonProbeFailed }
