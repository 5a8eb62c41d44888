// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Remove takes up to that many members of a task off the list and returns
// them, the newest first: they have learnt least. Of learners the plain ones
// go before those of several GPUs, which are dearer to make again.
func Remove(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, task v2alpha1.TaskType, replicas int32) []v2alpha1.Member {
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
	retain(job, spec, status, removed)
	return removed
}
