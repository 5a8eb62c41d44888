// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

// outOf is how the kubelet's reasons begin, in lower case, for a pod that it has
// not enough of a resource for: OutOfcpu, OutOfpods, OutOfnvidia.com/gpu.
const outOf = "outof"

// evicted is the kubelet's reason for a pod that it evicts, and nodeShort how its
// message begins where the node itself is short, also of kubelets that set no condition.
const (
	evicted   = "Evicted"
	nodeShort = "The node was low on resource: "
)

// failureLength is how much of what is said about a failure is kept, in bytes.
const failureLength = 1024

// Failure is the end of a pod that was recorded.
type Failure struct {
	// TaskType is the type of the pod's task.
	TaskType v2alpha1.TaskType
	// Reason is one of a few words for how it ended.
	Reason string
}

// recordEnd has the end of a pod counted once the status is written.
func (p *pass) recordEnd(task v2alpha1.TaskType, pod *corev1.Pod) {
	p.decision.Failures = append(p.decision.Failures, Failure{TaskType: task, Reason: endOf(p.Job, pod)})
}

// befell says what befell a failed pod, as a reason of the condition
// ReplicasInterrupted, "" where it failed by what it ran. The pod's own reason is
// what the kubelet gives, which sets the condition DisruptionTarget only on pods
// that it had taken.
func befell(pod *corev1.Pod) string {
	switch reason := pod.Status.Reason; {
	case pod.Status.Phase != corev1.PodFailed:
		// That its node has lost sight of it counts, unless somebody answers for that.
	case reason == evicted:
		return evictionOf(pod)
	case reason == "Preempting":
		return v2alpha1.ReasonPreempted
	case reason == "NodeShutdown", reason == "Terminated", reason == "Shutdown", reason == "NodeLost":
		return v2alpha1.ReasonNodeLost
	case isRejection(reason):
		return v2alpha1.ReasonRejected
	}
	disrupted := podCondition(pod, corev1.DisruptionTarget)
	switch {
	case disrupted == nil || disrupted.Status != corev1.ConditionTrue:
		return ""
	case disrupted.Reason == corev1.PodReasonPreemptionByScheduler:
		return v2alpha1.ReasonPreempted
	case disrupted.Reason == "DeletionByPodGC":
		return v2alpha1.ReasonNodeLost
	}
	return v2alpha1.ReasonEvicted
}

// evictionOf says what befell a pod that its kubelet evicted: its node was short
// of something, or did not take it at all. A pod that went beyond a limit of its
// own, as for an emptyDir, failed by what it ran: the kubelet sets no condition
// then. A coordinator is made again either way, as deployed users rely on.
func evictionOf(pod *corev1.Pod) string {
	statuses, disrupted := pod.Status.ContainerStatuses, podCondition(pod, corev1.DisruptionTarget)
	switch {
	case disrupted != nil && disrupted.Status == corev1.ConditionTrue, strings.HasPrefix(pod.Status.Message, nodeShort):
		return v2alpha1.ReasonEvicted
	case len(statuses)+len(pod.Status.InitContainerStatuses) == 0:
		return v2alpha1.ReasonRejected
	case membership.RoleOf(pod) == names.ReplicaTypeCoordinator:
		return v2alpha1.ReasonEvicted
	}
	return ""
}

// isRejection tells whether a kubelet did not take a pod for what another node,
// or the same one later, may have. What no node will ever have, such as another
// operating system or a sysctl that is not allowed, is a failure.
func isRejection(reason string) bool {
	switch reason {
	case "UnexpectedAdmissionError", "TopologyAffinityError", "InvalidNodeInfo",
		"NodeAffinity", "NodeName", "NodePorts", "TaintToleration":
		return true
	}
	return strings.HasPrefix(strings.ToLower(reason), outOf)
}

// Ends are the words for how a pod ended before its work was done.
func Ends() []string {
	return []string{
		v2alpha1.ReasonError, v2alpha1.ReasonOOMKilled, v2alpha1.ReasonContainerStart, v2alpha1.ReasonDeadlineExceeded, v2alpha1.ReasonNodeLost,
		v2alpha1.ReasonRejected, v2alpha1.ReasonEvicted, v2alpha1.ReasonPreempted, v2alpha1.ReasonLeft,
	}
}

// endOf says how a pod ended, by one of Ends.
func endOf(job *v2alpha1.DIJob, pod *corev1.Pod) string {
	if why := befell(pod); why != "" {
		return why
	}
	end, _ := culpritOf(pod)
	switch {
	case hasLeft(job, pod):
		return v2alpha1.ReasonLeft
	case pod.Status.Phase == corev1.PodUnknown:
		return v2alpha1.ReasonNodeLost
	case pod.Status.Reason == v2alpha1.ReasonDeadlineExceeded:
		return v2alpha1.ReasonDeadlineExceeded
	case end == nil:
		return v2alpha1.ReasonError
	case end.Reason == v2alpha1.ReasonOOMKilled:
		return v2alpha1.ReasonOOMKilled
	case neverRan(end):
		return v2alpha1.ReasonContainerStart
	}
	return v2alpha1.ReasonError
}

// culpritOf returns how the container ended that a pod failed by, nil where none
// did: the main container, unless that has not failed and another one has, whose
// name is returned, too.
func culpritOf(pod *corev1.Pod) (end *corev1.ContainerStateTerminated, name string) {
	main := mainTermination(pod)
	if main != nil && main.ExitCode != 0 {
		return main, ""
	}
	for _, group := range []struct {
		kind     string
		statuses []corev1.ContainerStatus
	}{{"init container ", pod.Status.InitContainerStatuses}, {"container ", pod.Status.ContainerStatuses}} {
		for i := range group.statuses {
			if ended := group.statuses[i].State.Terminated; ended != nil && ended.ExitCode != 0 {
				return ended, group.kind + group.statuses[i].Name
			}
		}
	}
	return main, ""
}

// failureOf says how a pod failed.
func failureOf(pod *corev1.Pod, now metav1.Time) *v2alpha1.LastFailure {
	failure := &v2alpha1.LastFailure{Pod: pod.Name, Reason: pod.Status.Reason, Message: pod.Status.Message, Time: &now}
	end, name := culpritOf(pod)
	switch {
	case end != nil:
		failure.Reason = cmp.Or(failure.Reason, end.Reason)
		failure.Message = cmp.Or(failure.Message, end.Message)
	case pod.Status.Phase == corev1.PodUnknown:
		failure.Reason = cmp.Or(failure.Reason, v2alpha1.ReasonNodeLost)
		failure.Message = cmp.Or(failure.Message, "its node has lost sight of it")
	}
	if name != "" {
		failure.Message = strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", name, exitOf(end), failure.Message), ": ")
	} else if end != nil {
		failure.ExitCode = &end.ExitCode
	}
	failure.Message = ending(failure.Message, failureLength)
	return failure
}

// causeOf says in brackets how a worker's pod failed, as far as it is known.
func causeOf(pod *corev1.Pod) string {
	end, name := culpritOf(pod)
	switch {
	case name != "":
		return fmt.Sprintf(" (%s: %s)", name, exitOf(end))
	case pod.Status.Reason == evicted, end == nil && pod.Status.Reason != "":
		return fmt.Sprintf(" (%s)", pod.Status.Reason)
	case end == nil && pod.Status.Phase == corev1.PodUnknown:
		return " (" + v2alpha1.ReasonNodeLost + ")"
	case end == nil:
		return ""
	case end.Reason == "" || end.Reason == v2alpha1.ReasonError:
		return fmt.Sprintf(" (exit code %d)", end.ExitCode)
	}
	return fmt.Sprintf(" (exit code %d, %s)", end.ExitCode, end.Reason)
}
