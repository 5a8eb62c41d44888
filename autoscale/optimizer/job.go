// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package optimizer

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// MaxSamples is how many samples of a job a caller keeps and sends. Older ones are dropped. The operator samples every 30 s, so
// they cover an hour: the present size for the 10 minutes before requests shrink, and the sizes before.
const MaxSamples = 120

// Job is what an optimizer knows of a job. Its JSON form is that of the protocol of package remote.
type Job struct {
	// Namespace, Name and UID identify the job.
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	// Now is the time of the decision.
	Now time.Time `json:"now"`
	// Stage is the stage of the last decision; empty before the first.
	Stage Stage `json:"stage,omitempty"`
	// Tasks are the tasks in the order of the spec.
	Tasks []Task `json:"tasks"`
	// Samples are the last measurements, the oldest first.
	Samples []Sample `json:"samples,omitempty"`
	// Limits bound every plan.
	Limits Limits `json:"limits"`
	// History is what finished jobs of the same group used; nil if there are none.
	History *History `json:"history,omitempty"`
	// Busy reports that a plan executes, or that the job is resized or restarts. No plan is generated
	// then.
	Busy bool `json:"busy,omitempty"`
	// LastPlan is when a plan of the job was last created, by a user or an optimizer; zero if never.
	LastPlan time.Time `json:"lastPlan,omitzero"`
	// LastServerPlan is when a plan last changed a parameter server; zero if never.
	LastServerPlan time.Time `json:"lastServerPlan,omitzero"`
}

// Role is what a task does for an optimizer.
type Role string

const (
	// RoleWorker is a task whose replicas compute or collect, and may come and go.
	RoleWorker Role = "Worker"
	// RoleParameterServer is a task whose replicas hold state that workers read and write.
	RoleParameterServer Role = "ParameterServer"
	// RoleLearner is a task that trains. Its replicas are fixed.
	RoleLearner Role = "Learner"
	// RoleOther is any other task. Its replicas are fixed.
	RoleOther Role = "Other"
)

// RoleOf returns the role of a task of a job. A task with drain, or named ps, is a parameter server. The
// elastic task, a collector, and a task named worker are workers.
func RoleOf(spec *v2alpha1.DIJobSpec, index int) Role {
	task := &spec.Tasks[index]
	name := names.TaskName(task)
	switch {
	case task.Drain != nil || name == "ps":
		return RoleParameterServer
	case task.Type == v2alpha1.TaskTypeLearner:
		return RoleLearner
	case task.Type == v2alpha1.TaskTypeCoordinator || task.Type == v2alpha1.TaskTypeEvaluator:
		return RoleOther
	case task.Type == v2alpha1.TaskTypeCollector || name == "worker" || spec.Elastic != nil && names.ElasticTask(spec) == index:
		return RoleWorker
	}
	return RoleOther
}

// Task is a task of a job.
type Task struct {
	// Name is its name in the job, and Type its type in the spec.
	Name string            `json:"name"`
	Type v2alpha1.TaskType `json:"type"`
	// Role is what it does.
	Role Role `json:"role"`
	// Replicas is the desired number of its replicas.
	Replicas int32 `json:"replicas"`
	// Min and Max bound the replicas. Both equal Replicas if another master decides the number (the spec,
	// the allocator, the ratio rule, an HPA).
	Min int32 `json:"min"`
	Max int32 `json:"max"`
	// Requests are the requests of a replica; zero where it requests nothing.
	Requests Resources `json:"requests"`
	// Template are the requests of its template.
	Template Resources `json:"template"`
	// Pods are its existing replicas.
	Pods []Replica `json:"pods,omitempty"`
	// Peak is the maximum usage of one replica that any sample of the job ever had. A replica that was
	// killed out of memory has used all that it requested.
	Peak Resources `json:"peak"`
	// GrownAt is when the requests of the task last grew by a plan or a recovery; zero if never.
	GrownAt time.Time `json:"grownAt,omitzero"`
}

// Replica is a pod of a task.
type Replica struct {
	// Task and Index identify it in the job.
	Task  string `json:"task"`
	Index int32  `json:"index"`
	// Pod is the name of its pod.
	Pod string `json:"pod"`
	// Requests are its requests, which may differ from those of the task.
	Requests Resources `json:"requests"`
}

// Resources are CPU and memory. Zero stands for none, not known, or unchanged.
type Resources struct {
	// CPU is in millicores.
	CPU int64 `json:"cpu,omitempty"`
	// Memory is in bytes.
	Memory int64 `json:"memory,omitempty"`
}

// Sample is one measurement of a job.
type Sample struct {
	// Time is when it was taken.
	Time time.Time `json:"time"`
	// Speed is the speed of training, in steps or samples per second; 0 if the job does not report it.
	Speed float64 `json:"speed,omitempty"`
	// Usage is that of every running replica.
	Usage []Usage `json:"usage"`
}

// Usage is what one replica used.
type Usage struct {
	// Task and Index identify the replica.
	Task  string `json:"task"`
	Index int32  `json:"index"`
	// Used is the CPU and memory of its main container.
	Used Resources `json:"used"`
	// Requests are its requests at that time.
	Requests Resources `json:"requests"`
}

// Limits bound every plan. A zero is no limit.
type Limits struct {
	// Job are the maximum total requests of the job: the minimum of spec.autoscale.optimizer.limit and the
	// installation's.
	Job Resources `json:"job"`
	// Replica are the maximum requests of one replica by the installation's settings.
	Replica Resources `json:"replica"`
	// Floor are the minimum requests that a plan may set.
	Floor Resources `json:"floor"`
	// Node is the allocatable of the largest node.
	Node Resources `json:"node"`
}

// History is what finished jobs of a group used.
type History struct {
	// Jobs is how many jobs it is of.
	Jobs int `json:"jobs"`
	// Peaks are the maximum usages of one replica, by task.
	Peaks map[string]Resources `json:"peaks"`
}

// Settled returns the last samples of the job in its present shape: every desired replica is in them, with
// its present requests.
func (j *Job) Settled() []Sample {
	shape := map[Usage]bool{}
	for i := range j.Tasks {
		task := &j.Tasks[i]
		for _, pod := range task.Pods {
			shape[Usage{Task: pod.Task, Index: pod.Index, Requests: pod.Requests}] = true
		}
		if int32(len(task.Pods)) != task.Replicas {
			return nil
		}
	}
	first := len(j.Samples)
	for first > 0 && j.Samples[first-1].of(shape) {
		first--
	}
	return j.Samples[first:]
}

// of reports whether a sample is of exactly these replicas.
func (s *Sample) of(shape map[Usage]bool) bool {
	if len(s.Usage) != len(shape) || len(shape) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.Usage, func(u Usage) bool {
		return !shape[Usage{Task: u.Task, Index: u.Index, Requests: u.Requests}]
	})
}

// Peaks returns the maximum usage of a replica of each task, by the peaks and samples of the job.
func Peaks(job *Job) map[string]Resources {
	peaks := map[string]Resources{}
	for i := range job.Tasks {
		peaks[job.Tasks[i].Name] = job.Tasks[i].Peak
	}
	for i := range job.Samples {
		for _, usage := range job.Samples[i].Usage {
			if peak, exists := peaks[usage.Task]; exists {
				peaks[usage.Task] = peak.max(usage.Used)
			}
		}
	}
	return peaks
}

// Task returns a task by its name; nil if there is none.
func (j *Job) Task(name string) *Task {
	for i := range j.Tasks {
		if j.Tasks[i].Name == name {
			return &j.Tasks[i]
		}
	}
	return nil
}

func (j *Job) has(role Role) bool {
	return slices.ContainsFunc(j.Tasks, func(t Task) bool { return t.Role == role && t.Replicas > 0 })
}

func (r Resources) max(other Resources) Resources {
	return Resources{CPU: max(r.CPU, other.CPU), Memory: max(r.Memory, other.Memory)}
}

// Least returns the smaller limits. Zero is no limit.
func (r Resources) Least(other Resources) Resources {
	return Resources{CPU: least(r.CPU, other.CPU), Memory: least(r.Memory, other.Memory)}
}

// least returns the smaller limit. Zero is no limit.
func least(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
