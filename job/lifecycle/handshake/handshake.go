// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handshake removes and replaces replicas that hold state. Such a replica is published as
// leaving, in a version that every member must acknowledge. It is released once they have, or at its
// timeout. The package is pure. Both kinds of jobs use it.
package handshake

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// defaultTimeout is how long members may take to acknowledge.
const defaultTimeout = 10 * time.Minute

// Handshake is the recorded membership of a job with its acknowledgements.
type Handshake struct {
	out *state.Plan
	in  *state.Input
	// change identifies the change that a removal belongs to. A removal that failed is tried again for
	// another change only.
	change string
	// hasStateful is set if some task has drain.
	hasStateful bool
	// published is the recorded membership; nil for none.
	published     *v2alpha1.PublishedMembership
	listed        List
	leaving, kept ranks.Set
	// isSameChange is set if kept belongs to the current change.
	isSameChange bool
	acknowledged ranks.Set
	// unacknowledged are the members whose acknowledgement is missing.
	unacknowledged []string
	// refused is the first refusal; nil for none.
	refused *v2alpha1.MembershipRefusal
}

// New reads the recorded membership of a job that desires a number of replicas.
func New(base *state.Plan, in *state.Input, desired int) *Handshake {
	h := &Handshake{out: base, in: in, change: changeOf(in.Job, desired), hasStateful: HasStateful(in.Job)}
	if scaling := in.Job.Status.Scaling; !h.hasStateful || scaling == nil || scaling.Membership == nil {
		return h
	}
	h.published = in.Job.Status.Scaling.Membership
	h.listed, h.leaving, h.kept = ReadList(h.published), ranks.Read(h.published.Leaving), ranks.Read(h.published.Kept)
	h.isSameChange = h.published.KeptFor == h.change
	if acks := in.Job.Status.MembershipAcks; acks != nil && acks.Version == h.published.Acknowledge {
		h.acknowledged = ranks.Read(acks.Ranks)
		h.refused = h.refusal(acks)
	}
	for _, pod := range in.Pods {
		if h.IsListed(pod) && !h.acknowledged.Has(podstate.Rank(pod)) {
			h.unacknowledged = append(h.unacknowledged, pod.Name)
		}
	}
	return h
}

// changeOf identifies what a job desires.
func changeOf(job *v2alpha1.DIJob, desired int) string {
	plan := ""
	if scaling := job.Status.Scaling; scaling != nil && scaling.Plan != nil {
		plan = scaling.Plan.UID
	}
	return fmt.Sprintf("%d/%d/%s", job.Generation, desired, plan)
}

// HasStateful reports whether some task of a job has drain.
func HasStateful(job *v2alpha1.DIJob) bool {
	return slices.ContainsFunc(job.Spec.Tasks, func(task v2alpha1.Task) bool { return task.Drain != nil })
}

// refusal returns the first refusal of a member; nil if none refuses.
func (h *Handshake) refusal(acks *v2alpha1.MembershipAcks) *v2alpha1.MembershipRefusal {
	for i := range acks.Refused {
		if pod := h.in.PodNamed[acks.Refused[i].Pod]; pod != nil && h.IsListed(pod) {
			return &acks.Refused[i]
		}
	}
	return nil
}

// isRunningMember reports whether a pod of this attempt runs and has a rank. A pod that does not
// run holds no state.
func (h *Handshake) isRunningMember(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && !podstate.Terminating(pod) && podstate.Rank(pod) >= 0 && !state.IsStale(pod, &h.in.Job.Status)
}

// IsListed reports whether the published membership lists a running pod. Another pod of the same rank is not
// listed.
func (h *Handshake) IsListed(pod *corev1.Pod) bool {
	return h.published != nil && h.isRunningMember(pod) && h.listed.Has(pod)
}

// DrainOf returns how a pod's task is drained, nil if its replicas hold no state.
func (h *Handshake) DrainOf(pod *corev1.Pod) *v2alpha1.Drain {
	if task := TaskOf(h.in.Job, pod); task >= 0 {
		return h.in.Job.Spec.Tasks[task].Drain
	}
	return nil
}

// TaskOf returns the index of a pod's task, -1 if the spec has no such task. Pods of coordinator-led jobs
// are labeled with their role.
func TaskOf(job *v2alpha1.DIJob, pod *corev1.Pod) int {
	role := names.RoleOf(pod)
	return slices.IndexFunc(job.Spec.Tasks, func(task v2alpha1.Task) bool {
		switch {
		case !state.IsCoordinatorLed(job):
			return names.TaskName(&task) == pod.Labels[names.LabelTaskName]
		case role == names.ReplicaTypeAggregator, role == names.ReplicaTypeDDPLearner:
			return task.Type == v2alpha1.TaskTypeLearner
		}
		return string(task.Type) == string(role)
	})
}

// IsFailed reports whether the removal of a pod failed, so that it stays until another change.
func (h *Handshake) IsFailed(pod *corev1.Pod) bool {
	rank, drain := podstate.Rank(pod), h.DrainOf(pod)
	if drain == nil || !h.IsListed(pod) {
		return false
	}
	return h.isSameChange && h.kept.Has(rank) || h.leaving.Has(rank) && h.result(drain) == failed
}

// HadState reports whether a member held state that it had not handed over, even if it no longer runs.
func (h *Handshake) HadState(pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	isHandedOver := h.leaving.Has(rank) && h.acknowledged.Has(rank)
	return h.published != nil && h.listed.Has(pod) && !isHandedOver && h.DrainOf(pod) != nil && !podstate.Terminating(pod) && !h.out.IsStale(pod)
}

// result is the state of a handshake.
type result int

const (
	waiting result = iota
	released
	failed
)

// result returns the state of the recorded handshake for a task. It requeues the job for the
// timeout.
func (h *Handshake) result(drain *v2alpha1.Drain) result {
	keeps := drain.OnTimeout != v2alpha1.DrainRemove
	left := h.timeLeft(drain)
	switch {
	case len(h.unacknowledged) == 0:
		return released
	case h.refused != nil && keeps, left <= 0 && keeps:
		return failed
	case left <= 0:
		return released
	}
	h.out.RequeueAfter(left)
	return waiting
}

// timeLeft returns how long members may still take to acknowledge. It counts from when this operator saw
// the handshake: another one, with another clock, may have begun it.
func (h *Handshake) timeLeft(drain *v2alpha1.Drain) time.Duration {
	if h.published.LeavingSince == nil {
		return 0
	}
	timeout := defaultTimeout
	if drain.TimeoutSeconds != nil {
		timeout = time.Duration(*drain.TimeoutSeconds) * time.Second
	}
	return h.in.LeavingSeen(h.published).Add(timeout).Sub(h.in.Now)
}
