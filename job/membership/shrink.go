// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Shrink removes the newest members, which have learned least. It removes learners of one GPU
// first, because others cost more to recreate.
type Shrink struct {
	// Job is the name of the job.
	Job string
	// Collectors and Learners are the maximum numbers of members to remove.
	Collectors, Learners int32
	// IsSizedByRule is set if a ratio rule sets the number of collectors. Then no request removes any.
	IsSizedByRule bool
}

// Apply removes the members.
func (s Shrink) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error) {
	if s.IsSizedByRule && s.Collectors > 0 {
		return Answer{}, ErrSizedByRule
	}
	collectors := s.remove(spec, status, v2alpha1.TaskTypeCollector, s.Collectors)
	return Answer{Members: append(collectors, s.remove(spec, status, v2alpha1.TaskTypeLearner, s.Learners)...)}, nil
}

func (s Shrink) remove(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, task v2alpha1.TaskType, replicas int32) []v2alpha1.Member {
	var removed []v2alpha1.Member
	for _, units := range []bool{false, true} {
		for i := len(spec.Members) - 1; i >= 0 && len(removed) < int(replicas); i-- {
			member := spec.Members[i]
			if member.Task != task || IsUnit(&member) != units {
				continue
			}
			removed = append(removed, member)
			spec.Members = slices.Delete(spec.Members, i, i+1)
		}
	}
	retain(s.Job, spec, status, removed)
	return removed
}
