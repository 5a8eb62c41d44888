// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
)

// Ack is the acknowledgement of a member, or its refusal.
type Ack struct {
	// Version is the version of the membership that must be acknowledged.
	Version int64
	// Pod and Rank are those of the member.
	Pod  string
	Rank int32
	// Refuse is set if the member refuses. Reason describes why.
	Refuse bool
	Reason string
}

// Published returns the published membership of a job; nil for none.
func Published(job *v2alpha1.DIJob) *v2alpha1.PublishedMembership {
	if job.Status.Scaling == nil {
		return nil
	}
	return job.Status.Scaling.Membership
}

// Acknowledge adds acknowledgements to a job, and returns the patch that writes them. It ignores those
// of another version than the job waits for.
func Acknowledge(job *v2alpha1.DIJob, given []Ack) JobPatch {
	list := Published(job)
	if list == nil || list.Acknowledge == 0 {
		return JobPatch{}
	}
	original := job.DeepCopy()
	before := job.Status.MembershipAcks
	next := &v2alpha1.MembershipAcks{Version: list.Acknowledge}
	acknowledged := map[int32]bool{}
	if before != nil && before.Version == list.Acknowledge {
		for _, rank := range ranks.ReadRun(before.Ranks) {
			acknowledged[rank] = true
		}
		next.Refused = slices.Clone(before.Refused)
	}
	for _, ack := range given {
		if ack.Version != list.Acknowledge {
			continue
		}
		next.Refused = slices.DeleteFunc(next.Refused, func(each v2alpha1.MembershipRefusal) bool { return each.Pod == ack.Pod })
		if !ack.Refuse {
			acknowledged[ack.Rank] = true
			continue
		}
		delete(acknowledged, ack.Rank)
		if len(next.Refused) < limits.Refusals {
			next.Refused = append(next.Refused, v2alpha1.MembershipRefusal{Pod: ack.Pod, Reason: ack.Reason})
		}
	}
	next.Ranks = ranks.Format(acknowledged)
	if before != nil && before.Version == next.Version && before.Ranks == next.Ranks && slices.Equal(before.Refused, next.Refused) {
		return JobPatch{}
	}
	job.Status.MembershipAcks = next
	return changed(original, "status")
}
