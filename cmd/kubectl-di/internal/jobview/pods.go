// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Pod is a pod of a job.
type Pod struct {
	// Name is the short name, and Pod the name.
	Name, Pod string
	// Role is the task, or the part of a unit. Task is the task whose replica the pod is, or is a part of.
	Role, Task   string
	IsAggregator bool
	// Unit is the short name of the aggregator of the unit; "" for other pods.
	Unit string
	Node string
	// State is the state in one word, as kubectl get pods shows it. Why says why a pod in it is not ready; "" if State says it.
	State, Why string
	// Message is the problem of the pod; "" if it has none.
	Message string
	Ready   bool
	Rank    *int32
	// Recreated is how often the operator has recreated the pod, and Restarted how often the kubelet restarted its containers.
	Recreated, Restarted int32
	// Ended is how the main container ended, now or before its last restart.
	Ended     *corev1.ContainerStateTerminated
	HasEnded  bool
	GPUs      int64
	CreatedAt *time.Time
}

// Restarts is how often the replica was restarted.
func (p *Pod) Restarts() int32 { return p.Recreated + p.Restarted }

// counted returns the task that counts the pod.
func (p *Pod) counted() string {
	if p.IsAggregator {
		return v2alpha1.AggregatorTaskStatus
	}
	return p.Task
}

// ExitCode returns how the main container ended as text, such as 137 (OOMKilled); - if it has not.
func (p *Pod) ExitCode() string {
	if p.Ended == nil {
		return "-"
	}
	text := strconv.Itoa(int(p.Ended.ExitCode))
	if reason := p.Ended.Reason; reason != "" && reason != "Completed" && reason != "Error" {
		text += " (" + reason + ")"
	}
	if !p.HasEnded {
		text += " before"
	}
	return text
}

// podsOf returns the job's own pods, in the order of the tasks.
func podsOf(o *Observed) []Pod {
	own := replicas.Of(o.Job, o.Pods)
	pods := make([]Pod, 0, len(own))
	units := unitsOf(o.Job, own)
	for _, pod := range own {
		found := podOf(o.Job, pod, o.Now)
		found.Unit = units[pod.Name]
		pods = append(pods, found)
	}
	return pods
}

// unitsOf returns the short names of the aggregators of the pods of units.
func unitsOf(job *v2alpha1.DIJob, pods []*corev1.Pod) map[string]string {
	units := map[string]string{}
	for _, aggregator := range pods {
		if names.RoleOf(aggregator) != names.ReplicaTypeAggregator {
			continue
		}
		name := replicas.Name(job.Name, aggregator.Name)
		units[aggregator.Name] = name
		for _, pod := range pods {
			if names.RoleOf(pod) == names.ReplicaTypeDDPLearner && membership.IsOwnedBy(pod, aggregator) {
				units[pod.Name] = name
			}
		}
	}
	return units
}

func podOf(job *v2alpha1.DIJob, pod *corev1.Pod, now time.Time) Pod {
	found := Pod{
		Name: replicas.Name(job.Name, pod.Name), Pod: pod.Name, Role: replicas.Role(pod), Task: replicas.Task(pod),
		IsAggregator: names.RoleOf(pod) == names.ReplicaTypeAggregator, Node: pod.Spec.NodeName, State: replicas.Status(pod), Ready: podstate.Ready(pod),
		Recreated: job.Status.ReplicaRestarts[pod.Name], Restarted: replicas.Restarts(pod), GPUs: GPUsOfPod(pod), CreatedAt: timeOf(&pod.CreationTimestamp),
	}
	found.Why = whyNotReady(pod, found.State)
	if rank := podstate.Rank(pod); rank != podstate.Unranked {
		found.Rank = &rank
	}
	if problem, isFound, _ := podstate.ActiveProblem(pod, now); isFound {
		found.Message = cmp.Or(problem.Message, problem.Reason)
	}
	found.Ended, found.HasEnded = podstate.LastTermination(pod), podstate.MainTermination(pod) != nil
	return found
}

// whyNotReady returns why a pod in a state is not ready, if the state does not say it.
func whyNotReady(pod *corev1.Pod, state string) string {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	switch {
	case state == string(corev1.PodRunning) && !podstate.ReportsReady(pod):
		return "not ready"
	case state == string(corev1.PodPending) && scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return scheduled.Reason
	}
	return ""
}
