// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// NotReadyGracePeriod is how long a pod may be neither ready nor finished before that is reported. Most pods
// start faster.
const NotReadyGracePeriod = time.Minute

// namedGates is how many scheduling gates of a pod a message names.
const namedGates = 3

// Wait returns what a pod waits for that is neither ready nor finished, and false for any other pod. A wait
// is no problem: it may be desired, and nothing depends on it.
func Wait(pod *corev1.Pod) (Problem, bool) {
	if Finished(pod) || Ready(pod) {
		return Problem{}, false
	}
	since := pod.CreationTimestamp.Time
	if ready := conditions.OfPod(pod, corev1.PodReady); ready != nil && ready.LastTransitionTime.After(since) {
		since = ready.LastTransitionTime.Time
	}
	if Terminating(pod) {
		since = pod.DeletionTimestamp.Add(-gracePeriod(pod))
	}
	wait := Problem{Reason: v2alpha1.ReasonNotReady, Message: whyNotReady(pod), from: since.Add(NotReadyGracePeriod)}
	if gates := pod.Spec.SchedulingGates; len(gates) > 0 && !Terminating(pod) {
		wait.Reason, wait.Message = v2alpha1.ReasonSchedulingGated, describeGates(gates)
	}
	return wait, true
}

// describeGates names the first few scheduling gates of a pod.
func describeGates(gates []corev1.PodSchedulingGate) string {
	var named []string
	for _, gate := range gates[:min(len(gates), namedGates)] {
		named = append(named, gate.Name)
	}
	text := "waits behind scheduling gate " + quotable(strings.Join(named, ", "))
	if more := len(gates) - namedGates; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return 0
}

// whyNotReady describes the stage at which a pod is that is not ready.
func whyNotReady(pod *corev1.Pod) string {
	switch {
	case Terminating(pod):
		return fmt.Sprintf("is terminating, with a grace period of %s", gracePeriod(pod))
	case pod.Spec.NodeName == "":
		return fmt.Sprintf("scheduler %q has not assigned it to a node yet", cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName))
	}
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if status.State.Running != nil && !status.Ready && (status.Started == nil || !*status.Started) {
			return fmt.Sprintf("init container %s runs, and the other containers wait for it", status.Name)
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if cause := whyContainerNotReady(&pod.Status.ContainerStatuses[i], pod.Spec.NodeName); cause != "" {
			return cause
		}
	}
	ready := conditions.OfPod(pod, corev1.PodReady)
	switch {
	case ready != nil && ready.Message != "":
		return "is not ready: " + quotable(ready.Message)
	case len(pod.Status.ContainerStatuses) == 0:
		return fmt.Sprintf("node %s has not started it yet", pod.Spec.NodeName)
	}
	return "is not ready"
}

// whyContainerNotReady describes why a container is not ready, "" for one that is.
func whyContainerNotReady(status *corev1.ContainerStatus, node string) string {
	switch state := &status.State; {
	case status.Ready:
		return ""
	case state.Terminated != nil:
		return fmt.Sprintf("container %s has exited (%s)", status.Name, exitText(state.Terminated))
	case state.Running == nil:
		return fmt.Sprintf("node %s pulls the image of container %s, or creates it", node, status.Name)
	case status.Started != nil && !*status.Started:
		return fmt.Sprintf("container %s runs and has not passed its startup probe; see the events of the pod", status.Name)
	}
	return fmt.Sprintf("container %s runs and does not pass its readiness probe; see the events of the pod", status.Name)
}
