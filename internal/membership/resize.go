// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Resize sets the number of members of a task for the operator. The coordinator learns of it by the list.
type Resize struct {
	// Namespace and Job name the job.
	Namespace, Job string
	// Task is the role of the members, collector or learner.
	Task v2alpha1.TaskType
	// Replicas is the desired number of members.
	Replicas int32
	// ID identifies the resize among the recorded requests. Removed pods drain for as long as it is recorded.
	ID string
	// MaxMembers bounds the members of the job.
	MaxMembers int32
	// Random yields the suffixes of new names.
	Random Random
}

// Apply adds members with the resources of the task's newest one, or removes the newest ones.
func (r Resize) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, now time.Time) error {
	present := membersOf(spec, r.Task)
	more := r.Replicas - int32(len(present))
	if more >= 0 {
		demand := Demand{Task: r.Task, Replicas: more}
		if len(present) > 0 {
			newest := &present[len(present)-1]
			demand.Resources, demand.DDPGPUs = newest.Resources, newest.DDPGPUs
		}
		_, err := Grow{Job: r.Job, Demands: []Demand{demand}, MaxMembers: r.MaxMembers, Random: r.Random}.Apply(spec, status)
		return err
	}
	shrink := Shrink{Job: r.Job}
	if r.Task == v2alpha1.TaskTypeCollector {
		shrink.Collectors = -more
	} else {
		shrink.Learners = -more
	}
	answer, err := shrink.Apply(spec, status)
	if err != nil {
		return err
	}
	// Only the names in the record count.
	at := Endpoints{Namespace: r.Namespace, Job: r.Job, Ports: func(_ string, role names.ReplicaType) int32 { return names.DefaultPort(role) }}
	Record(spec, Request{ID: r.ID, Removal: true}, answer.URLs(at, status), now)
	return nil
}

// Count returns the number of members of a task.
func Count(spec *v2alpha1.MembershipSpec, task v2alpha1.TaskType) int32 {
	return int32(len(membersOf(spec, task)))
}
