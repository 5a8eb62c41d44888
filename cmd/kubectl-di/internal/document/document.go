// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package document has the page of kubectl di describe as data: -o json and -o yaml. Scripts depend on its fields.
package document

import (
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
)

// Job is the answer about a job.
type Job struct {
	Namespace   string             `json:"namespace"`
	Name        string             `json:"name"`
	Lifecycle   v2alpha1.Lifecycle `json:"lifecycle"`
	Phase       v2alpha1.Phase     `json:"phase"`
	Reason      string             `json:"reason,omitempty"`
	Message     string             `json:"message,omitempty"`
	Suspended   bool               `json:"suspended,omitempty"`
	Terminating bool               `json:"terminating,omitempty"`
	Ready       int                `json:"ready"`
	Desired     int                `json:"desired"`
	GPUs        int64              `json:"gpus,omitempty"`
	Restarts    int32              `json:"restarts"`
	Reschedules int32              `json:"reschedules,omitempty"`
	CreatedAt   time.Time          `json:"createdAt"`
	CompletedAt *time.Time         `json:"completedAt,omitempty"`
	Creator     string             `json:"creator,omitempty"`
	Queue       string             `json:"queue,omitempty"`
	Group       string             `json:"group,omitempty"`
	Priority    string             `json:"priority,omitempty"`
	// Waiting is absent if the job runs as desired, or has finished.
	Waiting     *Waiting    `json:"waiting,omitempty"`
	Conditions  []Condition `json:"conditions,omitempty"`
	LastFailure *Failure    `json:"lastFailure,omitempty"`
	Decisions   []Decision  `json:"decisions,omitempty"`
	Tasks       []Task      `json:"tasks"`
	Pods        []Pod       `json:"pods,omitempty"`
	Events      []Event     `json:"events,omitempty"`
	// NotShown are the parts that the user may not read, with the reason.
	NotShown map[string]string `json:"notShown,omitempty"`
}

// Waiting is why a job does not run as desired, and what would let it.
type Waiting struct {
	Why      string     `json:"why"`
	Since    *time.Time `json:"since,omitempty"`
	Remedies []string   `json:"remedies,omitempty"`
}

// Condition is a condition of a job.
type Condition struct {
	Type    string     `json:"type"`
	Status  string     `json:"status"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
}

// Failure is that of the last pod that failed.
type Failure struct {
	Pod      string     `json:"pod"`
	ExitCode *int32     `json:"exitCode,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	Remedies []string   `json:"remedies,omitempty"`
}

// Decision is what was decided last about the size or the place of a job.
type Decision struct {
	Who     string     `json:"who"`
	Plan    string     `json:"plan,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	At      *time.Time `json:"at,omitempty"`
}

// Task counts the pods of a task. Desired is absent if the user may not read what tells it.
type Task struct {
	Name    string              `json:"name"`
	Type    v2alpha1.TaskType   `json:"type,omitempty"`
	Desired *int                `json:"desired,omitempty"`
	Ready   int                 `json:"ready"`
	Phases  v2alpha1.TaskStatus `json:"phases,omitempty"`
}

// Pod is a pod of a job.
type Pod struct {
	Name      string     `json:"name"`
	Role      string     `json:"role"`
	Node      string     `json:"node,omitempty"`
	State     string     `json:"state"`
	Why       string     `json:"why,omitempty"`
	Message   string     `json:"message,omitempty"`
	Ready     bool       `json:"ready"`
	Rank      *int32     `json:"rank,omitempty"`
	Restarts  int32      `json:"restarts"`
	ExitCode  string     `json:"exitCode,omitempty"`
	CreatedAt *time.Time `json:"createdAt,omitempty"`
}

// Event is an Event of the job or of one of its pods.
type Event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	// Pod is absent for an Event of the job.
	Pod   string `json:"pod,omitempty"`
	From  string `json:"from,omitempty"`
	Count int32  `json:"count"`
}

// Of returns the answer about a job as data.
func Of(o *jobview.Observed, unread map[string]string) Job {
	v := jobview.Of(o)
	job := Job{
		Namespace: v.Namespace, Name: v.Name, Lifecycle: v.Lifecycle, Phase: v.Phase, Reason: v.Reason, Message: v.Message,
		Suspended: v.IsSuspended, Terminating: v.IsTerminating, Ready: v.Ready, Desired: v.Desired, GPUs: v.GPUs,
		Restarts: v.Restarts, Reschedules: v.Reschedules, CreatedAt: v.CreatedAt, CompletedAt: v.CompletedAt,
		Creator: v.Creator, Queue: v.Queue, Group: v.Group, Priority: v.Priority, Events: Events(v.Events), NotShown: unread,
	}
	if v.Waiting != nil {
		job.Waiting = &Waiting{v.Waiting.Why, v.Waiting.Since, v.Waiting.Remedies}
	}
	for i := range v.Conditions {
		c := &v.Conditions[i]
		job.Conditions = append(job.Conditions, Condition{c.Type, string(c.Status), c.Reason, c.Message, c.Since})
	}
	if f := v.Failure; f != nil {
		job.LastFailure = &Failure{f.Pod, f.ExitCode, f.Reason, f.Message, f.At, f.Remedies}
	}
	for _, d := range v.Decisions {
		job.Decisions = append(job.Decisions, Decision{d.Who, d.Plan, d.Reason, d.Message, d.At})
	}
	for _, t := range v.Tasks {
		job.Tasks = append(job.Tasks, Task{t.Name, t.Type, t.Desired, t.Ready, t.Phases})
	}
	for i := range v.Pods {
		p := &v.Pods[i]
		pod := Pod{
			Name: p.Pod, Role: p.Role, Node: p.Node, State: p.State, Why: p.Why, Message: p.Message, Ready: p.Ready, Rank: p.Rank,
			Restarts: p.Restarts(), CreatedAt: p.CreatedAt,
		}
		if p.Ended != nil {
			pod.ExitCode = p.ExitCode()
		}
		job.Pods = append(job.Pods, pod)
	}
	return job
}

// Events returns Events as data.
func Events(all []jobview.Event) []Event {
	events := make([]Event, 0, len(all))
	for i := range all {
		e := &all[i]
		events = append(events, Event{e.At, e.Type, e.Reason, e.Message, e.Pod, e.From, e.Count})
	}
	return events
}
