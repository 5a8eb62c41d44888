// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// summarizeWorkers writes the counts of a worker-led job and, unless a rule has set it,
// the phase.
func summarizeWorkers(p *plan) {
	status := p.status()
	p.beginCounting()
	for _, pod := range p.Pods {
		p.count(pod.Labels[names.LabelTaskName], pod)
	}
	p.summarizeElastic()
	p.resetBackoff()
	p.endResize()
	if p.isExcessive() && status.Phase != "" {
		// What its pods are for is not known.
		return
	}
	if IsFinished(status) || IsSuspended(p.Job) || status.Restarts > p.Job.Status.Restarts || status.Reschedules > p.Job.Status.Reschedules {
		return
	}
	p.summarizePhase()
}

// summarizePhase: a job that was Running stays so while it has pods, because a resize or
// a replacement restarts no other replica. It is Starting once all its pods are created.
func (p *plan) summarizePhase() {
	status := p.status()
	existing, ready := 0, 0
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.pods[replica.Pod]
		switch {
		case p.completed().has(replica.Rank):
			existing++
			ready++
		case pod != nil:
			existing++
			if podstate.Ready(pod) {
				ready++
			}
		}
	}
	switch wanted := len(p.assignment.Replicas); {
	case existing == 0:
		// Between two attempts or placements there is a moment without pods.
		if isUnplaced(p.Job) || status.Phase != v2alpha1.JobRestarting && status.Phase != v2alpha1.JobRescheduling {
			p.setPhase(v2alpha1.JobPending, p.pendingMessage())
		}
	case ready == wanted:
		p.setPhase(v2alpha1.JobRunning, fmt.Sprintf("all %d replicas are ready", wanted))
		p.updateRunningMessage("all %d replicas are ready", wanted)
	case status.Phase == v2alpha1.JobRunning:
		// The number that is ready stands in readyReplicas, and changes often.
		p.updateRunningMessage("not all %d replicas are ready", wanted)
	case status.Phase == v2alpha1.JobStarting || existing == wanted:
		p.recordPending()
		p.setPhase(v2alpha1.JobStarting, fmt.Sprintf("pods are created, %d replicas are desired", wanted))
	case status.Phase == "":
		p.setPhase(v2alpha1.JobPending, p.pendingMessage())
	}
}

// updateRunningMessage keeps the message of a running job up to date.
func (p *plan) updateRunningMessage(format string, replicas int) {
	p.updateMessage(string(v2alpha1.JobRunning), fmt.Sprintf(format, replicas))
}

// updateMessage keeps the message of a phase's condition up to date while it is True.
func (p *plan) updateMessage(kind, message string) {
	held := conditions.Find(p.status(), kind)
	if held != nil && held.Status == corev1.ConditionTrue && held.Message != message {
		held.Message, held.LastUpdateTime = message, &p.now
	}
}

// recordPending records that a new job was Pending, even if its pods exist already.
func (p *plan) recordPending() {
	status := p.status()
	if status.Phase == "" {
		conditions.Set(status, string(v2alpha1.JobPending), corev1.ConditionTrue, reasonOf(v2alpha1.JobPending, false), p.pendingMessage(), p.Now)
	}
}

func (p *plan) pendingMessage() string {
	if isUnplaced(p.Job) {
		return "the job waits for the allocator to place it"
	}
	if p.gang.missing != "" {
		return "the job waits for a gang scheduler"
	}
	if p.decision.Waits {
		return "the job waits until objects of an earlier job of its name are deleted"
	}
	return "not all pods are created yet"
}

// summarizeElastic writes what the scale subresource shows.
func (p *plan) summarizeElastic() {
	status := p.status()
	status.ElasticReplicas, status.Selector = 0, ""
	elastic := names.ElasticTask(&p.Job.Spec)
	if elastic < 0 {
		return
	}
	task := names.TaskName(&p.Job.Spec.Tasks[elastic])
	for _, pod := range p.Pods {
		if pod.Labels[names.LabelTaskName] == task && podstate.Active(pod) {
			status.ElasticReplicas++
		}
	}
	selector := names.WorkerJobLabels(p.Job.Name)
	selector[names.LabelTaskName] = task
	status.Selector = labels.Set(selector).String()
}

// summarizeReplicas writes the counts of a coordinator-led job and, unless a rule has
// set it, the phase.
func summarizeReplicas(p *plan) {
	status := p.status()
	p.beginCounting()
	for _, pod := range p.Pods {
		p.count(taskOfRole(p.Job, names.RoleOf(pod)), pod)
	}
	p.resetBackoff()
	if IsFinished(status) || IsSuspended(p.Job) {
		return
	}
	if slots, known := p.slots(); known {
		status.Replicas = int32(len(p.wantedNames(slots)))
	}
	coordinator := p.coordinator()
	switch {
	case coordinator != nil && coordinator.Status.Phase == corev1.PodRunning && !podstate.Terminating(coordinator):
		p.setPhase(v2alpha1.JobRunning, fmt.Sprintf("coordinator %s runs", coordinator.Name))
	case coordinator != nil && podstate.Terminating(coordinator):
		p.setStarting(fmt.Sprintf("coordinator %s is terminating and is recreated once it is gone", coordinator.Name))
	case coordinator != nil:
		p.setStarting(fmt.Sprintf("coordinator %s is created", coordinator.Name))
	case status.Phase != "" && p.decision.HeldBack:
		p.setStarting("the coordinator is missing: the API server refused it, and the operator retries")
	case status.Phase != "" && p.decision.Waits:
		p.setStarting("the coordinator waits until objects of an earlier job of its name are deleted")
	case status.Phase != "":
		p.setStarting("the coordinator is gone and is recreated")
	}
}

// setStarting sets the phase Starting of a coordinator-led job, and keeps its message
// up to date.
func (p *plan) setStarting(message string) {
	p.setPhase(v2alpha1.JobStarting, message)
	p.updateMessage(conditionOf(v2alpha1.JobStarting, true), message)
}

// beginCounting resets the counts. Tasks that are recorded without any pod stay: v0.2.2
// records all roles, and its clients read each.
func (p *plan) beginCounting() {
	status := p.status()
	var empty map[string]v2alpha1.TaskStatus
	for task, counts := range status.TaskStatus {
		if len(counts) > 0 {
			continue
		}
		if empty == nil {
			empty = map[string]v2alpha1.TaskStatus{}
		}
		empty[task] = v2alpha1.TaskStatus{}
	}
	status.TaskStatus, status.ReadyReplicas = empty, 0
}

// count counts a pod under its task. A pod in a crash loop does not count as ready in
// between.
func (p *plan) count(task string, pod *corev1.Pod) {
	status := p.status()
	if status.TaskStatus == nil {
		status.TaskStatus = map[string]v2alpha1.TaskStatus{}
	}
	if status.TaskStatus[task] == nil {
		status.TaskStatus[task] = v2alpha1.TaskStatus{}
	}
	status.TaskStatus[task][podstate.Phase(pod)]++
	if podstate.Ready(pod) && !p.isCrashing(pod) {
		status.ReadyReplicas++
	}
}

// taskOfRole returns the key under which pods of a role are counted: the task whose
// template they have; aggregators have a key of their own.
func taskOfRole(job *v2alpha1.DIJob, role names.ReplicaType) string {
	if role == names.ReplicaTypeAggregator {
		return v2alpha1.AggregatorTaskStatus
	}
	kind := v2alpha1.TaskType(role)
	if role == names.ReplicaTypeDDPLearner {
		kind = v2alpha1.TaskTypeLearner
	}
	for i := range job.Spec.Tasks {
		if job.Spec.Tasks[i].Type == kind {
			return names.TaskName(&job.Spec.Tasks[i])
		}
	}
	return string(kind)
}
