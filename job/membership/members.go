// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package membership has the rules of a coordinator-led job's members: their slots and names, the
// DDP learners of a learner of several GPUs, the advertised URLs, and the edits that requests make.
// It is pure.
package membership

import (
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Role returns the role of a member's pod, as in the pod's label. A learner of several GPUs is an
// aggregator.
func Role(member *v2alpha1.Member) names.ReplicaType {
	switch {
	case IsUnit(member):
		return names.ReplicaTypeAggregator
	case member.Task == v2alpha1.TaskTypeLearner:
		return names.ReplicaTypeLearner
	default:
		return names.ReplicaTypeCollector
	}
}

// IsUnit reports whether a member is a learner of several GPUs: an aggregator and its DDP learners,
// which are replaced together.
func IsUnit(member *v2alpha1.Member) bool {
	return len(member.DDPGPUs) > 0
}

// PodName returns the name of a member's current pod, or of a unit's aggregator.
// Each failure report and each loss yields a new name, because clients never
// reconnect to a URL that they know.
func PodName(job string, member *v2alpha1.Member, lost int32) string {
	return podNameAt(job, member, limits.Sum(member.FailureReports, lost))
}

// PodNames returns the names of all current pods of a member, that of PodName first.
func PodNames(job string, member *v2alpha1.Member, lost int32) []string {
	name := PodName(job, member, lost)
	return append([]string{name}, DDPPodNames(job, member, name)...)
}

// podNameAt returns the name of a member's nth pod, counted from 0.
func podNameAt(job string, member *v2alpha1.Member, incarnation int32) string {
	if incarnation == 0 {
		return member.PodName
	}
	suffix := names.Suffix(member.Slot, member.PodName, strconv.Itoa(int(incarnation)))
	return names.ReplicaPod(job, Role(member), suffix)
}

// DDPPodNames returns the names of a unit's DDP learner pods in rank order, given the name of its
// aggregator. The names in a unit of an earlier release are recorded. All others follow from the
// aggregator's name.
func DDPPodNames(job string, member *v2alpha1.Member, aggregator string) []string {
	if aggregator == member.PodName && len(member.DDPPodNames) == len(member.DDPGPUs) {
		return slices.Clone(member.DDPPodNames)
	}
	pods := make([]string, len(member.DDPGPUs))
	for index := range pods {
		pods[index] = DDPPodName(job, aggregator, index)
	}
	return pods
}

// DDPPodName returns the name of the nth DDP learner pod in rank order, counted
// from 0. It follows from the aggregator's name, so that a unit is renamed whole.
func DDPPodName(job, aggregator string, index int) string {
	suffix := names.Suffix(aggregator, strconv.Itoa(index))
	return names.ReplicaPod(job, names.ReplicaTypeDDPLearner, suffix)
}

// Losses returns how often a slot's pod was lost.
func Losses(status *v2alpha1.MembershipStatus, slot string) int32 {
	for i := range status.Slots {
		if status.Slots[i].Slot == slot {
			return status.Slots[i].Losses
		}
	}
	return 0
}

// Find returns the member that has a current pod with the name, and the role of the pod; nil if
// there is none.
func Find(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, pod string) (*v2alpha1.Member, names.ReplicaType) {
	slot, found := currentNames(job, spec, status)[pod]
	if !found {
		return nil, ""
	}
	member := BySlot(spec, slot)
	if pod == PodName(job, member, Losses(status, slot)) {
		return member, Role(member)
	}
	return member, names.ReplicaTypeDDPLearner
}

// BySlot returns the member of a slot; nil if there is none.
func BySlot(spec *v2alpha1.MembershipSpec, slot string) *v2alpha1.Member {
	i := slices.IndexFunc(spec.Members, func(member v2alpha1.Member) bool { return member.Slot == slot })
	if i < 0 {
		return nil
	}
	return &spec.Members[i]
}

// IsReplicaName reports whether a pod name has the form of a job's replicas. The coordinator's name
// does not.
func IsReplicaName(job, pod string) bool {
	for _, role := range replicaRoles() {
		suffix, found := strings.CutPrefix(pod, names.ReplicaPod(job, role, ""))
		if found && len(suffix) == names.SuffixLength && !strings.ContainsAny(suffix, "-.") {
			return true
		}
	}
	return false
}

// JobNames returns the names of the jobs whose replica a pod with the name may be. There may be
// several, because the name of a job may end like a role.
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

func replicaRoles() []names.ReplicaType {
	return []names.ReplicaType{
		names.ReplicaTypeCollector,
		names.ReplicaTypeLearner,
		names.ReplicaTypeAggregator,
		names.ReplicaTypeDDPLearner,
	}
}
