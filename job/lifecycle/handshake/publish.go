// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// joinInterval is the minimum interval between versions in which members only join.
const joinInterval = time.Second

// Publish records the next version of the membership, after the rules that release pods. Ready
// pods of these names become members.
func (h *Handshake) Publish(removals Removals, joining map[string]bool) {
	if h.out.Status().Scaling == nil || state.IsFinished(&h.in.Job.Status) {
		return
	}
	if !h.hasStateful {
		h.record(nil)
		h.reportDrain(nil)
		return
	}
	next := h.nextMembership(removals, joining)
	if before := h.published; before != nil {
		isSame := next.Active == before.Active && next.Leaving == before.Leaving && next.Kept == before.Kept
		switch {
		case isSame && h.listed.pods == nil:
			// An earlier operator published it.
			h.identify(next)
			return
		case isSame && next.Pods == before.Pods, h.delaysJoin(next):
			return
		}
		next.Version = before.Version
	}
	h.numberMembership(next)
	h.record(next)
	h.reportLeft(next)
	h.reportDrain(next)
}

// identify adds to the recorded version which pods it lists.
func (h *Handshake) identify(next *v2alpha1.PublishedMembership) {
	same := h.published.DeepCopy()
	same.Pods, same.PodsVersion = next.Pods, same.Version
	h.record(same)
}

func (h *Handshake) record(published *v2alpha1.PublishedMembership) {
	scaling := h.out.Scaling()
	scaling.Membership = published
	h.out.RecordScaling(&scaling)
}

// numberMembership gives a changed membership its version and times. A member that joins while
// others leave, and a member that begins to leave, make all members acknowledge again.
func (h *Handshake) numberMembership(next *v2alpha1.PublishedMembership) {
	now := h.in.Timestamp
	next.Version++
	next.PublishedAt, next.PodsVersion = &now, next.Version
	if next.Kept != "" {
		next.KeptFor = h.change
	}
	if next.Leaving == "" {
		return
	}
	next.LeavingSince, next.Acknowledge = &now, next.Version
	if h.published == nil || h.leaving.IsEmpty() || hasOther(next.Leaving, &h.leaving) {
		return
	}
	next.LeavingSince = h.published.LeavingSince
	if !h.hasJoined(next) {
		next.Acknowledge = h.published.Acknowledge
	}
}

// hasOther reports whether ranges have a rank that is not in a set.
func hasOther(text string, known *ranks.Set) bool {
	return slices.ContainsFunc(ranks.ReadRun(text), func(rank int32) bool { return !known.Has(rank) })
}

// hasJoined reports whether a membership lists a pod that the recorded one does not list.
func (h *Handshake) hasJoined(next *v2alpha1.PublishedMembership) bool {
	listed := ReadList(next)
	return slices.ContainsFunc(ranks.ReadRun(next.Active), func(rank int32) bool {
		return !h.listed.active.Has(rank) || h.listed.pods != nil && h.listed.pods[rank] != listed.pods[rank]
	})
}

// nextMembership returns the current members, without a version.
func (h *Handshake) nextMembership(removals Removals, joining map[string]bool) *v2alpha1.PublishedMembership {
	members, leaving, kept := h.members(joining), map[int32]bool{}, map[int32]bool{}
	for rank, pod := range removals.asked {
		switch {
		case members[rank] == nil || members[rank].UID != pod.UID:
		case h.IsFailed(pod):
			kept[rank] = true
		default:
			leaving[rank] = true
		}
	}
	next := &v2alpha1.PublishedMembership{Leaving: ranks.Format(leaving), Kept: ranks.Format(kept)}
	setMembers(next, members)
	return next
}

// members returns the members by rank: the listed pods that still run, and the ready pods that may join.
func (h *Handshake) members(joining map[string]bool) map[int32]*corev1.Pod {
	members := map[int32]*corev1.Pod{}
	for _, pod := range h.in.Pods {
		if !h.isRunningMember(pod) {
			continue
		}
		rank, isListed := podstate.Rank(pod), h.IsListed(pod)
		// The record may be lost while members run.
		mayBe := isListed || podstate.Ready(pod) && (h.published == nil || joining[pod.Name])
		// Two pods may have a rank for a moment. The listed one keeps it.
		if other := members[rank]; mayBe && (other == nil || isListed && !h.IsListed(other) || isListed == h.IsListed(other) && pod.Name < other.Name) {
			members[rank] = pod
		}
	}
	return members
}

// delaysJoin reports whether a version in which members only join must wait, because many members
// of a large job join within a short time.
func (h *Handshake) delaysJoin(next *v2alpha1.PublishedMembership) bool {
	if next.Leaving != h.published.Leaving || next.Kept != h.published.Kept || h.published.PublishedAt == nil {
		return false
	}
	joined := ranks.Read(next.Active)
	if hasOther(h.published.Active, &joined) {
		return false
	}
	left := h.published.PublishedAt.Add(joinInterval).Sub(h.in.Now)
	if left <= 0 || left > joinInterval {
		return false
	}
	h.out.RequeueAfter(left)
	return true
}

// podsOf names the pods of ranks.
func (h *Handshake) podsOf(text string) []string {
	of := ranks.Read(text)
	var found []string
	for _, pod := range h.in.Pods {
		if of.Has(podstate.Rank(pod)) && !h.out.IsStale(pod) {
			found = append(found, pod.Name)
		}
	}
	return found
}

// reportDrain sets the conditions of a new version; nil is that of a job without state.
func (h *Handshake) reportDrain(next *v2alpha1.PublishedMembership) {
	if next == nil {
		next = &v2alpha1.PublishedMembership{}
	}
	if next.Leaving == "" {
		h.out.ClearCondition(v2alpha1.ConditionDraining)
	} else {
		message := fmt.Sprintf("%s must hand over their state: every member must acknowledge version %d",
			state.Few(h.podsOf(next.Leaving), ", "), next.Acknowledge)
		if hasOther(next.Leaving, &h.leaving) {
			h.out.Event(corev1.EventTypeNormal, v2alpha1.ConditionDraining, message)
		}
		h.out.RecordCondition(v2alpha1.ConditionDraining, corev1.ConditionTrue, v2alpha1.ConditionDraining, message)
	}
	switch {
	case next.Kept == "":
		h.out.ClearCondition(v2alpha1.ConditionDrainFailed)
	case hasOther(next.Kept, &h.kept):
		message := fmt.Sprintf("%s stay although the job desires otherwise: %s; another change of the job retries",
			state.Few(h.podsOf(next.Kept), ", "), h.whyUnacknowledged())
		h.out.Event(corev1.EventTypeWarning, v2alpha1.ConditionDrainFailed, message)
		h.out.RecordCondition(v2alpha1.ConditionDrainFailed, corev1.ConditionTrue, v2alpha1.ConditionDrainFailed, message)
	}
}

// reportLeft records the event of pods that have left since the last version.
func (h *Handshake) reportLeft(next *v2alpha1.PublishedMembership) {
	active := ranks.Read(next.Active)
	if h.leaving.IsEmpty() || !slices.ContainsFunc(ranks.ReadRun(h.published.Leaving), func(rank int32) bool { return !active.Has(rank) }) {
		return
	}
	left := slices.DeleteFunc(ranks.ReadRun(h.published.Leaving), active.Has)
	text := fmt.Sprintf("%s left, of %s %s", english.Plural(len(left), "replica", ""), english.PluralWord(len(left), "rank", ""), ranks.FormatRun(left))
	switch {
	case len(h.unacknowledged) == 0:
		h.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonDrained, text+": every member acknowledged that")
	case h.isAnyTimedOut():
		h.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonDrainTimedOut, text+": "+h.whyUnacknowledged())
	}
}

// isAnyTimedOut reports whether the time of some task to acknowledge is over.
func (h *Handshake) isAnyTimedOut() bool {
	return slices.ContainsFunc(h.in.Job.Spec.Tasks, func(task v2alpha1.Task) bool {
		return task.Drain != nil && h.timeLeft(task.Drain) <= 0
	})
}

// whyUnacknowledged describes which members have not acknowledged.
func (h *Handshake) whyUnacknowledged() string {
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
