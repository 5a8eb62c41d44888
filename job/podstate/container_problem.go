// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// CrashLoopBackOff is the kubelet's reason for a container that waits before its
// next restart.
const CrashLoopBackOff = "CrashLoopBackOff"

// These are the kubelet's reasons for a container that waits, and for one that terminated without
// having run.
const (
	containerCreating          = "ContainerCreating"
	podInitializing            = "PodInitializing"
	createContainerConfigError = "CreateContainerConfigError"
	invalidImageName           = "InvalidImageName"
	errImageNeverPull          = "ErrImageNeverPull"
	startError                 = "StartError"
	containerCannotRun         = "ContainerCannotRun"
)

// container is a container of a pod: its spec and its status.
type container struct {
	pod    *corev1.Pod
	spec   *corev1.Container
	status *corev1.ContainerStatus
	isInit bool
}

// containerProblems returns what keeps the containers of a pod from starting or
// from staying up.
func containerProblems(pod *corev1.Pod) []Problem {
	var problems []Problem
	for _, group := range []struct {
		specs    []corev1.Container
		statuses []corev1.ContainerStatus
		isInit   bool
	}{
		{pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true},
		{pod.Spec.Containers, pod.Status.ContainerStatuses, false},
	} {
		for i := range group.statuses {
			c := container{pod: pod, spec: specOf(group.specs, group.statuses[i].Name), status: &group.statuses[i], isInit: group.isInit}
			if found, isProblem := c.problem(); isProblem {
				problems = append(problems, found)
			}
		}
	}
	return problems
}

// specOf returns the container with the name; if there is none, one with nothing but the name.
func specOf(specs []corev1.Container, name string) *corev1.Container {
	for i := range specs {
		if specs[i].Name == name {
			return &specs[i]
		}
	}
	return &corev1.Container{Name: name}
}

func (c *container) problem() (Problem, bool) {
	transient := []string{"", CrashLoopBackOff, containerCreating, podInitializing}
	if waiting := c.status.State.Waiting; waiting != nil && !slices.Contains(transient, waiting.Reason) {
		return c.waitingProblem(waiting), true
	}
	end := c.lastEnd()
	switch {
	case end == nil:
		return Problem{Reason: v2alpha1.ReasonCrashLoop, Message: c.name() + " crashes repeatedly"}, c.isBackingOff()
	case neverRan(end):
		return c.startProblem(end.Message), c.status.State.Running == nil && (c.isBackingOff() || c.isRestarted(end))
	}
	return c.crashProblem(end), c.isBackingOff() || c.isRestarted(end) && c.isCrashLooping(end)
}

// waitingProblem returns why the kubelet cannot start a container. The kubelet
// alternates between reasons for the same problem: ErrImagePull and ImagePullBackOff.
func (c *container) waitingProblem(waiting *corev1.ContainerStateWaiting) Problem {
	image := fmt.Sprintf("image %q of %s", cmp.Or(c.spec.Image, c.status.Image), c.name())
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return Problem{Reason: v2alpha1.ReasonImagePull, Message: image + " cannot be pulled", LastMessage: pullMessage(waiting.Message)}
	case invalidImageName:
		return Problem{Reason: v2alpha1.ReasonImagePull, Message: image + " is not a valid name"}
	case errImageNeverPull:
		return Problem{Reason: v2alpha1.ReasonImagePull, Message: image + " is not on the node and imagePullPolicy is Never"}
	case createContainerConfigError:
		// The kubelet appends the pod's UID to some of these messages.
		message, _, _ := strings.Cut(waiting.Message, " (pod: ")
		return Problem{Reason: v2alpha1.ReasonContainerConfig, Message: c.name() + " cannot be configured: " + quotable(message)}
	}
	return c.startProblem(cmp.Or(waiting.Message, waiting.Reason))
}

func (c *container) startProblem(message string) Problem {
	return Problem{Reason: v2alpha1.ReasonContainerStart, Message: c.name() + " cannot be started", LastMessage: LastLine(message)}
}

// lastEnd returns how the container terminated last, nil if it never did.
func (c *container) lastEnd() *corev1.ContainerStateTerminated {
	if c.status.State.Terminated != nil {
		return c.status.State.Terminated
	}
	return c.status.LastTerminationState.Terminated
}

// neverRan reports whether a container terminated because it could not be started.
func neverRan(end *corev1.ContainerStateTerminated) bool {
	return end.Reason == startError || end.Reason == containerCannotRun
}

// isBackingOff reports whether the kubelet itself reports that the container is in a crash loop.
func (c *container) isBackingOff() bool {
	return c.status.State.Waiting != nil && c.status.State.Waiting.Reason == CrashLoopBackOff
}

// isRestarted reports whether the kubelet restarts the container after it
// terminated this way.
func (c *container) isRestarted(end *corev1.ContainerStateTerminated) bool {
	policy := cmp.Or(c.pod.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if c.isInit && policy == corev1.RestartPolicyAlways {
		policy = corev1.RestartPolicyOnFailure
	}
	if c.spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.spec.RestartPolicy)
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && end.ExitCode != 0
}

// isCrashLooping reports whether an end is one of several in a row. While the container runs again,
// only time shows whether that was the last.
func (c *container) isCrashLooping(end *corev1.ContainerStateTerminated) bool {
	switch {
	case end.FinishedAt.Sub(end.StartedAt.Time) >= StableAfter:
		return false
	case c.status.State.Terminated != nil:
		return c.status.RestartCount >= toleratedRestarts
	}
	return c.status.RestartCount > toleratedRestarts
}

func (c *container) crashProblem(end *corev1.ContainerStateTerminated) Problem {
	found := Problem{
		Reason: v2alpha1.ReasonCrashLoop,
		Message: fmt.Sprintf("%s crashes repeatedly: %s, restarted %s",
			c.name(), exitText(end), times(c.status.RestartCount)),
		LastMessage: LastLine(end.Message),
	}
	if running := c.status.State.Running; running != nil {
		found.until = running.StartedAt.Add(StableAfter)
	}
	return found
}

func (c *container) name() string {
	if c.isInit {
		return "init container " + c.status.Name
	}
	return "container " + c.status.Name
}
