// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package membership holds the rules of a coordinator-led job's members: their
// slots and names, how a learner's GPUs are cut into pods, the URLs that are
// listed, and what a request does to the list. It is pure: it reads no
// cluster, no clock and no source of randomness.
package membership

import (
	"slices"
	"strconv"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Role returns the role of a member's pod as its label says it: a learner of
// several GPUs is an aggregator.
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

// IsUnit reports whether a member is a learner of several GPUs, which is an
// aggregator and its DDP learners, replaced as one.
func IsUnit(member *v2alpha1.Member) bool {
	return len(member.DDPGPUs) > 0
}

// PodName returns the name of a member's current pod; for a unit, that of its
// aggregator. Every report and every loss gives a new name, so that a client
// which never reconnects to a URL that it knows meets a new one.
func PodName(job string, member *v2alpha1.Member, lost int32) string {
	return podNameAt(job, member, limits.Sum(member.FailureReports, lost))
}

// PodNames returns the names of all current pods of a member, the first as PodName does.
func PodNames(job string, member *v2alpha1.Member, lost int32) []string {
	name := PodName(job, member, lost)
	return append([]string{name}, DDPPodNames(job, member, name)...)
}

// podNameAt returns the name of a member's pod of that number, counted from 0.
func podNameAt(job string, member *v2alpha1.Member, incarnation int32) string {
	if incarnation == 0 {
		return member.PodName
	}
	suffix := names.Suffix(member.Slot, member.PodName, strconv.Itoa(int(incarnation)))
	return names.ReplicaPod(job, Role(member), suffix)
}

// DDPPodNames returns the names of a unit's DDP learner pods in rank order,
// given that of its aggregator. Those of a unit that an earlier release made are
// recorded; all others follow from the aggregator's.
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

// DDPPodName returns the name that a DDP learner pod is given, counted from 0
// in rank order. It follows from the aggregator's name, so that the unit is
// renamed as one.
func DDPPodName(job, aggregator string, index int) string {
	suffix := names.Suffix(aggregator, strconv.Itoa(index))
	return names.ReplicaPod(job, names.ReplicaTypeDDPLearner, suffix)
}

// Lost returns how often a slot's pod was lost.
func Losses(status *v2alpha1.MembershipStatus, slot string) int32 {
	for i := range status.Slots {
		if status.Slots[i].Slot == slot {
			return status.Slots[i].Losses
		}
	}
	return 0
}
