// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// A replica that holds state is removed or replaced in steps. It is published as leaving, in a
// version that every member must acknowledge. It is released once they have, or at its timeout.

// defaultDrainTimeout is how long members may take to acknowledge.
const defaultDrainTimeout = 10 * time.Minute

// handshake is the recorded membership with its acknowledgements. The zero value is none.
type handshake struct {
	// hasStateful is set if some task has drain.
	hasStateful bool
	// published is the recorded membership; nil for none.
	published             *v2alpha1.PublishedMembership
	active, leaving, kept ranks.Set
	// isSameChange is set if kept belongs to the current change.
	isSameChange bool
	acknowledged ranks.Set
	// unacknowledged are the members whose acknowledgement is missing.
	unacknowledged []string
	// refused is the first refusal; nil for none.
	refused *v2alpha1.MembershipRefusal
}

// readHandshake reads the recorded membership of a job that has a task with drain.
func (in *Input) readHandshake() {
	h := &in.handshake
	h.hasStateful = slices.ContainsFunc(in.Job.Spec.Tasks, func(task v2alpha1.Task) bool { return task.Drain != nil })
	if scaling := in.Job.Status.Scaling; !h.hasStateful || scaling == nil || scaling.Membership == nil {
		return
	}
	h.published = in.Job.Status.Scaling.Membership
	h.active, h.leaving, h.kept = ranks.Read(h.published.Active), ranks.Read(h.published.Leaving), ranks.Read(h.published.Kept)
	h.isSameChange = h.published.KeptFor == in.change()
	if acks := in.Job.Status.MembershipAcks; acks != nil && acks.Version == h.published.Acknowledge {
		h.acknowledged = ranks.Read(acks.Ranks)
		h.refused = in.refusal(acks)
	}
	for _, pod := range in.Pods {
		if in.isListed(pod) && !h.acknowledged.Has(podstate.Rank(pod)) {
			h.unacknowledged = append(h.unacknowledged, pod.Name)
		}
	}
}

// refusal returns the first refusal of a member; nil if none refuses.
func (in *Input) refusal(acks *v2alpha1.MembershipAcks) *v2alpha1.MembershipRefusal {
	for i := range acks.Refused {
		if pod := in.PodNamed[acks.Refused[i].Pod]; pod != nil && in.isListed(pod) {
			return &acks.Refused[i]
		}
	}
	return nil
}

// change identifies the change that a removal belongs to. A removal that failed is tried again for
// another change only.
func (in *Input) change() string {
	plan := ""
	if scaling := in.Job.Status.Scaling; scaling != nil && scaling.Plan != nil {
		plan = scaling.Plan.UID
	}
	return fmt.Sprintf("%d/%d/%s", in.Job.Generation, in.counts.Total, plan)
}

// isRunningMember reports whether a pod of this attempt runs and has a rank. A pod that does not
// run holds no state.
func (in *Input) isRunningMember(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && !podstate.Terminating(pod) && podstate.Rank(pod) >= 0 && !state.IsStale(pod, &in.Job.Status)
}

// isListed reports whether the published membership lists a running pod. A pod that was created
// later has the rank of a pod that the list means.
func (in *Input) isListed(pod *corev1.Pod) bool {
	h := &in.handshake
	if h.published == nil || !in.isRunningMember(pod) || !h.active.Has(podstate.Rank(pod)) {
		return false
	}
	at := h.published.PublishedAt
	return at == nil || !pod.CreationTimestamp.After(at.Time)
}

// drainOf returns how a pod's task is drained, nil if its replicas hold no state.
func (in *Input) drainOf(pod *corev1.Pod) *v2alpha1.Drain {
	if task := in.taskOf(pod); task >= 0 {
		return in.Job.Spec.Tasks[task].Drain
	}
	return nil
}

// taskOf returns the index of a pod's task, -1 if the spec has no such task.
func (in *Input) taskOf(pod *corev1.Pod) int {
	return slices.IndexFunc(in.Job.Spec.Tasks, func(task v2alpha1.Task) bool {
		return names.TaskName(&task) == pod.Labels[names.LabelTaskName]
	})
}

// mayRelease reports whether a pod may be deleted or replaced by intent now: by a shrink, a
// migration or a change of resources. A pod of a task with drain must hand over its state first,
// which begins when a rule asks for it here. Other pods always may.
func (p *Plan) mayRelease(pod *corev1.Pod) bool {
	drain := p.drainOf(pod)
	if drain == nil || !p.isRunningMember(pod) {
		return true
	}
	h, rank := &p.handshake, podstate.Rank(pod)
	if h.published != nil && !p.isListed(pod) {
		// It never joined, so no peer gave it state.
		return true
	}
	if p.asked == nil {
		p.asked = map[int32]*corev1.Pod{}
	}
	p.asked[rank] = pod
	return h.leaving.Has(rank) && p.drainResult(drain) == drainReleased
}

// isDrainFailed reports whether the removal of a pod failed, so that it stays until another change.
func (p *Plan) isDrainFailed(pod *corev1.Pod) bool {
	h, rank := &p.handshake, podstate.Rank(pod)
	drain := p.drainOf(pod)
	if drain == nil || !p.isListed(pod) {
		return false
	}
	return h.isSameChange && h.kept.Has(rank) || h.leaving.Has(rank) && p.drainResult(drain) == drainFailed
}

// drainResult is the state of a handshake.
type drainResult int

const (
	drainWaiting drainResult = iota
	drainReleased
	drainFailed
)

// drainResult returns the state of the recorded handshake for a task. It requeues the job for the
// timeout.
func (p *Plan) drainResult(drain *v2alpha1.Drain) drainResult {
	h := &p.handshake
	keeps := drain.OnTimeout != v2alpha1.DrainRemove
	left := p.drainLeft(drain)
	switch {
	case len(h.unacknowledged) == 0:
		return drainReleased
	case h.refused != nil && keeps, left <= 0 && keeps:
		return drainFailed
	case left <= 0:
		return drainReleased
	}
	p.RequeueAfter(left)
	return drainWaiting
}

// drainLeft returns how long members may still take to acknowledge.
func (p *Plan) drainLeft(drain *v2alpha1.Drain) time.Duration {
	since := p.handshake.published.LeavingSince
	if since == nil {
		return 0
	}
	timeout := defaultDrainTimeout
	if drain.TimeoutSeconds != nil {
		timeout = time.Duration(ptr.Deref(drain.TimeoutSeconds, 0)) * time.Second
	}
	return since.Add(timeout).Sub(p.Now)
}
