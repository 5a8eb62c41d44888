// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// ForeignNameError is the error for a name that no replica of the job has or had.
type ForeignNameError struct {
	// Job is the name of the job.
	Job string
	// Name is the foreign name.
	Name string
}

// Error implements error.
func (e *ForeignNameError) Error() string {
	return fmt.Sprintf("%q is no replica of job %q", e.Name, e.Job)
}

// Replace replaces members that are reported as failed. Each member gets one new pod with a new
// name, even if several names belong to it, such as those of a unit's DDP learners. The name of a
// lost pod, which was replaced already, is withdrawn. A name that a replica of the job may have had
// but that no member has is ignored.
type Replace struct {
	// Job is the name of the job.
	Job string
	// By is the role that reports. The answer to a coordinator has the URLs of the replaced
	// members, the answer to an aggregator those of their DDP learners.
	By names.ReplicaType
	// Pods are the names of the failed pods.
	Pods []string
}

// Apply replaces the members, and returns them in the order of the list. A foreign name causes a
// ForeignNameError and changes nothing.
func (r Replace) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error) {
	slots := currentNames(r.Job, spec, status)
	reported := make(map[string]bool, len(r.Pods))
	named := make(map[string]bool, len(r.Pods))
	for _, pod := range r.Pods {
		slot, current := slots[pod]
		if !current && !IsReplicaName(r.Job, pod) {
			return Answer{}, &ForeignNameError{Job: r.Job, Name: pod}
		}
		reported[slot] = reported[slot] || current
		named[pod] = true
	}
	lost := lostBySlot(status)
	kept := keptOfEach(spec.Members, lost)
	answer := Answer{OnlyDDPLearners: r.By != names.ReplicaTypeCoordinator}
	for i := range spec.Members {
		member := &spec.Members[i]
		isReported := reported[member.Slot]
		isNamed := r.withdrawNamed(member, status, lost[member.Slot], kept, named)
		if isReported {
			r.rename(member, lost[member.Slot], slots)
		}
		if isReported || isNamed {
			answer.Members = append(answer.Members, *member)
		}
	}
	spec.RetainedPods = slices.DeleteFunc(spec.RetainedPods, func(pod v2alpha1.RetainedPod) bool { return named[pod.PodName] })
	return answer, nil
}

// withdrawNamed withdraws the named lost pods of a member, and reports whether there is any.
func (r Replace) withdrawNamed(member *v2alpha1.Member, status *v2alpha1.MembershipStatus, lost, kept int32, named map[string]bool) bool {
	found := false
	for _, pod := range lostPods(r.Job, member, status, lost, kept) {
		if named[pod.name] {
			withdraw(member, pod.incarnation)
			found = true
		}
	}
	return found
}

// rename gives a member its next name that no other member has, and records the slot of the name.
// It withdraws the current name and those that it skipped.
func (r Replace) rename(member *v2alpha1.Member, lost int32, slots map[string]string) {
	next := func() []string {
		withdraw(member, limits.Sum(member.FailureReports, lost))
		member.FailureReports = limits.Sum(member.FailureReports, 1)
		return PodNames(r.Job, member, lost)
	}
	isOthers := func(name string) bool { slot, given := slots[name]; return given && slot != member.Slot }
	pods := next()
	for member.FailureReports < limits.Losses && slices.ContainsFunc(pods, isOthers) {
		pods = next()
	}
	for _, name := range pods {
		slots[name] = member.Slot
	}
}

// currentNames returns the slot of each name that a pod of the job must have now.
func currentNames(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) map[string]string {
	lost := lostBySlot(status)
	slots := make(map[string]string, len(spec.Members))
	for i := range spec.Members {
		member := &spec.Members[i]
		for _, name := range PodNames(job, member, lost[member.Slot]) {
			slots[name] = member.Slot
		}
	}
	return slots
}

// lostBySlot returns the losses of each slot that has any.
func lostBySlot(status *v2alpha1.MembershipStatus) map[string]int32 {
	lost := map[string]int32{}
	for i := range status.Slots {
		if status.Slots[i].Losses > 0 {
			lost[status.Slots[i].Slot] = status.Slots[i].Losses
		}
	}
	return lost
}
