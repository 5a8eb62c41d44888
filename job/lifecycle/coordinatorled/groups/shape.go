// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled/slots"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/workload"
)

// shapeOf identifies what the pods of a slot request: members of the same shape can take each other's place in a group.
// It covers all that pods are built from, which is more than Kueue compares.
func (p *Plan) shapeOf(slot *slots.Slot) string {
	in, member := p.facts.In, slot.Member
	sum := sha256.New()
	for i := range in.Job.Spec.Tasks {
		if in.Job.Spec.Tasks[i].Type == member.Task {
			sum.Write(in.Job.Spec.Tasks[i].Template.Raw)
		}
	}
	if membership.IsUnit(member) && in.AggregatorConfig != nil {
		sum.Write(in.AggregatorConfig.Spec.Aggregator.Template.Raw)
	}
	requested, override := member.Resources, in.Builder.OverrideOf(workload.MemberID(in.Job, member))
	fmt.Fprintf(sum, " %v %v %v %v %v %v", requested.CPUs, requested.GPUs, requested.Memory, member.DDPGPUs, override.CPU, override.Memory)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
