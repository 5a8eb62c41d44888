// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// ForeignNameError says that a name is none that a replica of the job has or had.
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

// ReportFailed counts a report against each member that a name stands for, so
// that the member's pod is replaced under a new name, and returns the members
// as they are then, in the order of the list. However many names of a request
// stand for a member, among them a unit's DDP learners, it is replaced once.
// The name of a lost pod, which was replaced already, is listed no more. A name
// that the job's replicas could have had but none has now is left alone: it was
// replaced or removed already. Where a name is foreign nothing is changed and a
// ForeignNameError is returned.
func ReportFailed(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, pods []string) ([]v2alpha1.Member, error) {
	slots := currentNames(job, spec, status)
	reported := make(map[string]bool, len(pods))
	named := make(map[string]bool, len(pods))
	for _, pod := range pods {
		slot, current := slots[pod]
		if !current && !IsReplicaName(job, pod) {
			return nil, &ForeignNameError{Job: job, Name: pod}
		}
		reported[slot] = reported[slot] || current
		named[pod] = true
	}
	lost := lostBySlot(status)
	kept := keptOfEach(spec.Members, lost)
	var replaced []v2alpha1.Member
	for i := range spec.Members {
		member := &spec.Members[i]
		if report(job, member, status, lost[member.Slot], kept, reported[member.Slot], named) {
			if reported[member.Slot] {
				rename(job, member, lost[member.Slot], slots)
			}
			replaced = append(replaced, *member)
		}
	}
	spec.RetainedPods = slices.DeleteFunc(spec.RetainedPods, func(pod v2alpha1.RetainedPod) bool { return named[pod.PodName] })
	return replaced, nil
}

// report withdraws a member's pods that were named, replaces the current one if
// it was, and reports whether any was.
func report(job string, member *v2alpha1.Member, status *v2alpha1.MembershipStatus, lost, kept int32, current bool, named map[string]bool) bool {
	found := current
	for _, pod := range lostPods(job, member, status, lost, kept) {
		if named[pod.name] {
			withdraw(member, pod.incarnation)
			found = true
		}
	}
	if current {
		withdraw(member, limits.Sum(member.FailureReports, lost))
		member.FailureReports = limits.Sum(member.FailureReports, 1)
	}
	return found
}

// rename goes on to the next name of a member until no other has it, and notes whose it
// is. The names that it leaves out are listed for no pod.
func rename(job string, member *v2alpha1.Member, lost int32, slots map[string]string) {
	isOthers := func(name string) bool { slot, given := slots[name]; return given && slot != member.Slot }
	pods := PodNames(job, member, lost)
	for ; member.FailureReports < limits.Losses && slices.ContainsFunc(pods, isOthers); pods = PodNames(job, member, lost) {
		withdraw(member, limits.Sum(member.FailureReports, lost))
		member.FailureReports = limits.Sum(member.FailureReports, 1)
	}
	for _, name := range pods {
		slots[name] = member.Slot
	}
}

// Find returns the member whose current pods bear the name, and the role of
// that pod; nil where there is none.
func Find(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, pod string) (*v2alpha1.Member, names.ReplicaType) {
	slot, found := currentNames(job, spec, status)[pod]
	if !found {
		return nil, ""
	}
	i := slices.IndexFunc(spec.Members, func(member v2alpha1.Member) bool { return member.Slot == slot })
	member := &spec.Members[i]
	if pod == PodName(job, member, Losses(status, slot)) {
		return member, Role(member)
	}
	return member, names.ReplicaTypeDDPLearner
}

// IsReplicaName reports whether a pod name has the form of the names that are
// given to the replicas of a job, its coordinator apart.
func IsReplicaName(job, pod string) bool {
	for _, role := range replicaRoles() {
		suffix, found := strings.CutPrefix(pod, names.ReplicaPod(job, role, ""))
		if found && len(suffix) == names.SuffixLength && !strings.ContainsAny(suffix, "-.") {
			return true
		}
	}
	return false
}

// JobNames returns the names of the jobs whose replica a pod of that name may
// be; several, as the name of a job may end like a role.
func JobNames(pod string) []string {
	cut := strings.LastIndex(pod, "-")
	if cut < 0 || len(pod)-cut-1 != names.SuffixLength {
		return nil
	}
	var jobs []string
	for _, role := range replicaRoles() {
		if job, found := strings.CutSuffix(pod[:cut], "-"+string(role)); found && job != "" {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// replicaRoles returns the roles of replicas.
func replicaRoles() []names.ReplicaType {
	return []names.ReplicaType{
		names.ReplicaTypeCollector,
		names.ReplicaTypeLearner,
		names.ReplicaTypeAggregator,
		names.ReplicaTypeDDPLearner,
	}
}

// currentNames returns the slot of each name that a pod of the job is to have now.
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

// lostBySlot returns how often each slot's pod was lost.
func lostBySlot(status *v2alpha1.MembershipStatus) map[string]int32 {
	lost := map[string]int32{}
	for i := range status.Slots {
		// Most slots never lose a pod.
		if status.Slots[i].Losses > 0 {
			lost[status.Slots[i].Slot] = status.Slots[i].Losses
		}
	}
	return lost
}
