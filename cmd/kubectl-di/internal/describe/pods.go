// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// writePods writes the pods that there are, by task.
func (p *page) writePods(out *bytes.Buffer) {
	fmt.Fprintln(out, "\nPods:")
	if p.refused(out, partPods) {
		return
	}
	if len(p.pods) == 0 {
		fmt.Fprintln(out, "  "+none)
		return
	}
	pods := slices.Clone(p.pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(p.order(&a), p.order(&b)), cmp.Compare(rank(&a), rank(&b)), cmp.Compare(a.Name, b.Name))
	})
	rows := [][]string{{"TASK", "POD", "STATUS", "RESTARTS", "EXIT CODE", "NODE", "AGE"}}
	for i := range pods {
		pod := &pods[i]
		rows = append(rows, []string{
			taskOf(pod), pod.Name, statusOf(pod), p.podRestarts(pod), exitCode(pod), cmp.Or(pod.Spec.NodeName, none), p.age(&pod.CreationTimestamp),
		})
	}
	table(out, "  ", rows)
}

// taskOf names the task, or the role, of a pod.
func taskOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels[names.LabelTaskName], pod.Labels[names.LabelReplicaType], none)
}

// order says where in the spec the task of a pod is; roles that are no task come last.
func (p *page) order(pod *corev1.Pod) int {
	of := taskOf(pod)
	for i := range p.job.Spec.Tasks {
		if names.TaskName(&p.job.Spec.Tasks[i]) == of {
			return i
		}
	}
	return len(p.job.Spec.Tasks)
}

// rank returns the rank of a pod, by which those of a task are ordered.
func rank(pod *corev1.Pod) int {
	value, err := strconv.Atoi(pod.Annotations[names.AnnotationRank])
	if err != nil {
		return 0 // It has none, and is ordered by its name.
	}
	return value
}

// statusOf says how a pod is, as kubectl get pods does: by what it waits for or
// ended with, which tells more than its phase.
func statusOf(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			state := &statuses[i].State
			switch {
			case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
				return state.Waiting.Reason
			case state.Terminated != nil && state.Terminated.ExitCode != 0:
				return cmp.Or(state.Terminated.Reason, "Error")
			}
		}
	}
	phase := string(cmp.Or(pod.Status.Phase, corev1.PodPending))
	switch {
	case pod.Status.Reason != "":
		return pod.Status.Reason
	case pod.Status.Phase == corev1.PodRunning && !podstate.ReportsReady(pod):
		return phase + ", not ready"
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return phase + unscheduled(pod)
	}
	return phase
}

// unscheduled says why no node is found for a pod.
func unscheduled(pod *corev1.Pod) string {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason == "" {
		return ""
	}
	return ", " + scheduled.Reason
}

// podRestarts says how often the kubelet started the pod's containers again, and
// how often the operator recreated the pod.
func (p *page) podRestarts(pod *corev1.Pod) string {
	restarts := int32(0)
	for i := range pod.Status.ContainerStatuses {
		restarts += pod.Status.ContainerStatuses[i].RestartCount
	}
	text := strconv.Itoa(int(restarts))
	if recreated := p.job.Status.ReplicaRestarts[pod.Name]; recreated > 0 {
		text += fmt.Sprintf(" (recreated: %d)", recreated)
	}
	return text
}

// exitCode returns what the main container of a pod ended with, now or before
// its last start.
func exitCode(pod *corev1.Pod) string {
	main := podstate.MainContainer(pod)
	switch {
	case main == nil:
		return "-"
	case main.State.Terminated != nil:
		return ended(main.State.Terminated)
	case main.LastTerminationState.Terminated != nil:
		return ended(main.LastTerminationState.Terminated) + " before"
	}
	return "-"
}

func ended(state *corev1.ContainerStateTerminated) string {
	text := strconv.Itoa(int(state.ExitCode))
	if state.Reason != "" && state.Reason != "Completed" && state.Reason != "Error" {
		text += " (" + state.Reason + ")"
	}
	return text
}
