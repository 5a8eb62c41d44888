// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Resize sets numbers of members for the operator. The coordinator learns of it by the list.
type Resize struct {
	// Namespace and Job name the job.
	Namespace, Job string
	// Remove are the pods whose members are removed first; a unit is named by its aggregator. A name that
	// no member has is ignored, because its member is gone.
	Remove []string
	// Replicas are the desired numbers of members by role, collector or learner. Others stay.
	Replicas map[v2alpha1.TaskType]int32
	// ID identifies the resize among the recorded requests. Removed pods drain for as long as it is recorded.
	ID string
	// MaxMembers bounds the members of the job.
	MaxMembers int32
	// Random yields the suffixes of new names.
	Random Random
}

// IsRecorded reports whether the resize was applied.
func (r Resize) IsRecorded(spec *v2alpha1.MembershipSpec) bool {
	return recordOf(spec.Requests, r.ID) != nil
}

// Apply adds members with the resources of their task's newest one, or removes the newest ones. It records
// the resize.
func (r Resize) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, now time.Time) error {
	removed := r.removeNamed(spec, status)
	for _, task := range []v2alpha1.TaskType{v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		wanted, isSet := r.Replicas[task]
		present := membersOf(spec, task)
		more := wanted - int32(len(present))
		switch {
		case isSet && more < 0:
			removed = append(removed, Shrink{Job: r.Job}.remove(spec, status, task, -more)...)
		case isSet:
			demand := Demand{Task: task, Replicas: more}
			if len(present) > 0 {
				newest := &present[len(present)-1]
				demand.Resources, demand.DDPGPUs = newest.Resources, newest.DDPGPUs
			}
			if _, err := (Grow{Job: r.Job, Demands: []Demand{demand}, MaxMembers: r.MaxMembers, Random: r.Random}).Apply(spec, status); err != nil {
				return err
			}
		}
	}
	// Only the names in the record count.
	at := Endpoints{Namespace: r.Namespace, Job: r.Job, Ports: func(_ string, role names.ReplicaType) int32 { return names.DefaultPort(role) }}
	Record(spec, Request{ID: r.ID, Removal: true}, at.URLs(removed, status), now, Unaged)
	return nil
}

func (r Resize) removeNamed(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) []v2alpha1.Member {
	named := make(map[string]bool, len(r.Remove))
	for _, pod := range r.Remove {
		named[pod] = true
	}
	lost := lostBySlot(status)
	isNamed := func(member v2alpha1.Member) bool { return named[PodName(r.Job, &member, lost[member.Slot])] }
	removed := slices.DeleteFunc(slices.Clone(spec.Members), func(member v2alpha1.Member) bool { return !isNamed(member) })
	spec.Members = slices.DeleteFunc(spec.Members, isNamed)
	retain(r.Job, spec, status, removed)
	return removed
}

// Count returns the number of members of a task.
func Count(spec *v2alpha1.MembershipSpec, task v2alpha1.TaskType) int32 {
	return int32(len(membersOf(spec, task)))
}
