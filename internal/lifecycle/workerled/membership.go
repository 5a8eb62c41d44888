// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// joinInterval is the minimum interval between versions in which members only join.
const joinInterval = time.Second

// publishMembership records the next version of the membership. It comes after all rules that
// release pods.
func (p *Plan) publishMembership() state.Result {
	scaling, h := p.Status().Scaling, &p.handshake
	if scaling == nil || state.IsFinished(&p.Job.Status) {
		return state.Continue
	}
	if !h.hasStateful {
		scaling.Membership = nil
		p.reportDrain(nil)
		return state.Continue
	}
	next := p.nextMembership()
	if before := h.published; before != nil {
		isSame := next.Active == before.Active && next.Leaving == before.Leaving && next.Kept == before.Kept
		if isSame || p.delaysJoin(next) {
			return state.Continue
		}
		next.Version = before.Version
	}
	p.numberMembership(next)
	scaling.Membership = next
	p.reportLeft(next)
	p.reportDrain(next)
	return state.Continue
}

// numberMembership gives a changed membership its version and times. A member that joins while
// others leave, and a member that begins to leave, make all members acknowledge again.
func (p *Plan) numberMembership(next *v2alpha1.PublishedMembership) {
	h, now := &p.handshake, p.Timestamp
	next.Version++
	next.PublishedAt = &now
	if next.Kept != "" {
		next.KeptFor = p.change()
	}
	if next.Leaving == "" {
		return
	}
	next.LeavingSince, next.Acknowledge = &now, next.Version
	if h.published == nil || h.leaving.IsEmpty() || hasOther(next.Leaving, &h.leaving) {
		return
	}
	next.LeavingSince = h.published.LeavingSince
	if !hasOther(next.Active, &h.active) {
		next.Acknowledge = h.published.Acknowledge
	}
}

// hasOther reports whether ranges have a rank that is not in a set.
func hasOther(text string, known *ranks.Set) bool {
	return slices.ContainsFunc(ranks.ReadRun(text), func(rank int32) bool { return !known.Has(rank) })
}

// nextMembership returns the current members, without a version.
func (p *Plan) nextMembership() *v2alpha1.PublishedMembership {
	active, leaving, kept := p.activeRanks(), map[int32]bool{}, map[int32]bool{}
	for rank, pod := range p.asked {
		switch {
		case !active[rank]:
		case p.isDrainFailed(pod):
			kept[rank] = true
		default:
			leaving[rank] = true
		}
	}
	return &v2alpha1.PublishedMembership{Active: ranks.Format(active), Leaving: ranks.Format(leaving), Kept: ranks.Format(kept)}
}

// activeRanks returns the ranks of the members: the listed pods that still run, and the ready pods
// that may join.
func (p *Plan) activeRanks() map[int32]bool {
	active := map[int32]bool{}
	complete := p.completeTasks()
	desired := make(map[string]int, len(p.assignment.Replicas))
	for i := range p.assignment.Replicas {
		desired[p.assignment.Replicas[i].Pod] = p.assignment.Replicas[i].Task
	}
	for _, pod := range p.Pods {
		if !p.isRunningMember(pod) {
			continue
		}
		task, isDesired := desired[pod.Name]
		// The record may be lost while members run.
		mayJoin := p.handshake.published == nil || isDesired && complete[task]
		if p.isListed(pod) || mayJoin && podstate.Ready(pod) {
			active[podstate.Rank(pod)] = true
		}
	}
	return active
}

// completeTasks returns the tasks whose replicas may join. Replicas that hold state join together,
// so that state moves once.
func (p *Plan) completeTasks() map[int]bool {
	complete := make(map[int]bool, len(p.Job.Spec.Tasks))
	for task := range p.Job.Spec.Tasks {
		complete[task] = true
	}
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.PodNamed[replica.Pod]
		isReady := p.completed().Has(replica.Rank) || pod != nil && (podstate.Ready(pod) || p.isListed(pod))
		if p.Job.Spec.Tasks[replica.Task].Drain != nil && !isReady {
			complete[replica.Task] = false
		}
	}
	return complete
}

// delaysJoin reports whether a version in which members only join must wait, because many members
// of a large job join within a short time.
func (p *Plan) delaysJoin(next *v2alpha1.PublishedMembership) bool {
	h := &p.handshake
	if next.Leaving != h.published.Leaving || next.Kept != h.published.Kept || h.published.PublishedAt == nil {
		return false
	}
	joined := ranks.Read(next.Active)
	if hasOther(h.published.Active, &joined) {
		return false
	}
	left := h.published.PublishedAt.Add(joinInterval).Sub(p.Now)
	if left <= 0 || left > joinInterval {
		return false
	}
	p.RequeueAfter(left)
	return true
}

// podsOf names the pods of ranks.
func (p *Plan) podsOf(text string) []string {
	of := ranks.Read(text)
	var found []string
	for _, pod := range p.Pods {
		if of.Has(podstate.Rank(pod)) && !p.IsStale(pod) {
			found = append(found, pod.Name)
		}
	}
	return found
}

// reportDrain sets the conditions of a new version; nil is that of a job without state.
func (p *Plan) reportDrain(next *v2alpha1.PublishedMembership) {
	if next == nil {
		next = &v2alpha1.PublishedMembership{}
	}
	if next.Leaving == "" {
		conditions.Clear(p.Status(), v2alpha1.ConditionDraining, p.Now)
	} else {
		message := fmt.Sprintf("%s must hand over their state: every member must acknowledge version %d",
			state.Few(p.podsOf(next.Leaving), ", "), next.Acknowledge)
		if hasOther(next.Leaving, &p.handshake.leaving) {
			p.Event(corev1.EventTypeNormal, v2alpha1.ConditionDraining, message)
		}
		conditions.Set(p.Status(), v2alpha1.ConditionDraining, corev1.ConditionTrue, v2alpha1.ConditionDraining, message, p.Now)
	}
	switch {
	case next.Kept == "":
		conditions.Clear(p.Status(), v2alpha1.ConditionDrainFailed, p.Now)
	case hasOther(next.Kept, &p.handshake.kept):
		message := fmt.Sprintf("%s stay although the job desires otherwise: %s; another change of the job retries",
			state.Few(p.podsOf(next.Kept), ", "), p.whyUnacknowledged())
		p.Event(corev1.EventTypeWarning, v2alpha1.ConditionDrainFailed, message)
		conditions.Set(p.Status(), v2alpha1.ConditionDrainFailed, corev1.ConditionTrue, v2alpha1.ConditionDrainFailed, message, p.Now)
	}
}

// reportLeft records the event of pods that have left since the last version.
func (p *Plan) reportLeft(next *v2alpha1.PublishedMembership) {
	h := &p.handshake
	active := ranks.Read(next.Active)
	if h.leaving.IsEmpty() || !slices.ContainsFunc(ranks.ReadRun(h.published.Leaving), func(rank int32) bool { return !active.Has(rank) }) {
		return
	}
	left := slices.DeleteFunc(ranks.ReadRun(h.published.Leaving), active.Has)
	text := fmt.Sprintf("%d replicas left, of ranks %s", len(left), ranks.FormatRun(left))
	switch {
	case len(h.unacknowledged) == 0:
		p.Event(corev1.EventTypeNormal, v2alpha1.ReasonDrained, text+": every member acknowledged that")
	case p.isAnyTimedOut():
		p.Event(corev1.EventTypeWarning, v2alpha1.ReasonDrainTimedOut, text+": "+p.whyUnacknowledged())
	}
}

// isAnyTimedOut reports whether the time of some task to acknowledge is over.
func (p *Plan) isAnyTimedOut() bool {
	return slices.ContainsFunc(p.Job.Spec.Tasks, func(task v2alpha1.Task) bool {
		return task.Drain != nil && p.drainLeft(task.Drain) <= 0
	})
}

// whyUnacknowledged describes which members have not acknowledged.
func (p *Plan) whyUnacknowledged() string {
	h := &p.handshake
	if h.published == nil {
		return "the acknowledgements are lost"
	}
	if h.refused != nil {
		text := fmt.Sprintf("%s refuses version %d", h.refused.Pod, h.published.Acknowledge)
		if h.refused.Reason != "" {
			text += ": " + h.refused.Reason
		}
		return text
	}
	return fmt.Sprintf("%s did not acknowledge version %d in time", state.Few(h.unacknowledged, ", "), h.published.Acknowledge)
}
