// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// ConflictDelay is the interval between attempts to use a name that another owner has. No watch
// covers the other owner's objects.
const ConflictDelay = 30 * time.Second

// batchDelay is the delay before the next batch of objects. Other jobs that wait come first.
const batchDelay = time.Millisecond

// Effects are the results of acting on a decision.
type Effects struct {
	// Failed is set if a write failed and is retried with backoff.
	Failed bool
	// Waiting is set if a write was not tried, because the API server rejected it
	// before.
	Waiting bool
	// Created is set if an object was created.
	Created bool
	// RejectedReason and Rejected describe what the API server rejects, or what has failed for a while
	// without its answer; "" for nothing.
	RejectedReason, Rejected string
	// Taken is set if an object could not be created because another one has its name.
	Taken bool
	// Conflicts describe those of these names that their owners keep.
	Conflicts []string
	// RetryAfter is after how long a rejected write is due again, 0 for never.
	RetryAfter time.Duration
	// AssumedFor is how long written objects are assumed to exist that no watch event has
	// confirmed; 0 if there are none.
	AssumedFor time.Duration
	// OthersWait is set if other jobs wait to be reconciled.
	OthersWait bool
}

// Outcome is what a reconcile commits and reports.
type Outcome struct {
	// Status is the job's whole status. Fields of other writers are unchanged.
	Status v2alpha1.DIJobStatus
	// Events describe changes in Status; they are recorded once it is written.
	Events []Event
	// Failures and ReplicaRestarts are those of the decision; they are counted once
	// Status is written.
	Failures, ReplicaRestarts []state.Failure
	// Adjustments are the reasons of the overrides in Status that are new; they are counted with it.
	Adjustments []string
	// RequeueAfter is after how long the job is reconciled again even if nothing
	// changes; 0 for never.
	RequeueAfter time.Duration
}

// Conclude returns what to commit for a job after a decision was acted on.
func Conclude(observed *Observed, decision *Decision, effects *Effects) Outcome {
	outcome := Outcome{
		Events: slices.Clone(decision.Events), Failures: decision.Failures, ReplicaRestarts: decision.ReplicaRestarts,
		Adjustments: decision.Adjustments, RequeueAfter: decision.RequeueAfter,
	}
	decision.Status.DeepCopyInto(&outcome.Status)
	outcome.reportRejections(observed, decision, effects)
	outcome.reportConflicts(observed, decision, effects)
	outcome.requeueAfter(effects.RetryAfter)
	outcome.Status.ObservedGeneration = generationOf(observed, decision, effects)
	outcome.Status.Summary = summarize(observed.Job, &outcome.Status, observed.Now)
	outcome.delayCounts(observed)
	if effects.OthersWait && !effects.Failed && !effects.Taken {
		outcome.delayFirstStatus(observed, decision)
	}
	if decision.More && effects.Created {
		outcome.RequeueAfter = batchDelay
	} else {
		outcome.requeueAfter(effects.AssumedFor)
	}
	return outcome
}

// generationOf returns the observed generation. It is that of the decision only if everything decided was
// written, or a condition says why not.
func generationOf(observed *Observed, decision *Decision, effects *Effects) int64 {
	if effects.Rejected == "" && (effects.Failed || decision.HeldBack || effects.Waiting) {
		return observed.Job.Status.ObservedGeneration
	}
	return decision.Status.ObservedGeneration
}

// reportRejections sets the condition for rejected writes.
func (o *Outcome) reportRejections(observed *Observed, decision *Decision, effects *Effects) {
	isWaiting := decision.HeldBack || effects.Waiting
	// Each rejection has an event of its own. After a failure it is unknown whether a rejection has ended.
	if effects.Rejected != "" || !isWaiting && !effects.Failed {
		conditions.Report(&o.Status, v2alpha1.ConditionReplicaFailure, effects.RejectedReason, effects.Rejected, observed.Now)
	}
}

// reportConflicts sets the condition for names that other owners have.
func (o *Outcome) reportConflicts(observed *Observed, decision *Decision, effects *Effects) {
	message := conflictMessage(observed, slices.Concat(decision.Conflicts, effects.Conflicts))
	if conditions.Report(&o.Status, v2alpha1.ConditionNameConflict, v2alpha1.ConditionNameConflict, message, observed.Now) {
		o.Events = append(o.Events, Event{Type: corev1.EventTypeWarning, Reason: v2alpha1.ConditionNameConflict, Message: message})
	}
	if message != "" {
		o.requeueAfter(ConflictDelay)
	}
}

// conflictMessage names the conflicts, or only some if there are many. A message that was written
// within the last ConflictDelay stays as long as there is any conflict.
func conflictMessage(observed *Observed, conflicts []string) string {
	if len(conflicts) == 0 {
		return ""
	}
	recorded := conditions.Find(&observed.Job.Status, v2alpha1.ConditionNameConflict)
	if recorded != nil && recorded.Status == corev1.ConditionTrue && recorded.LastUpdateTime != nil &&
		observed.Now.Sub(recorded.LastUpdateTime.Time) < ConflictDelay-time.Second {
		return recorded.Message
	}
	slices.Sort(conflicts)
	if len(conflicts) > limits.Named {
		conflicts = append(conflicts[:limits.Named:limits.Named], "and so are others")
	}
	return strings.Join(conflicts, "; ")
}

// delayCounts leaves the status unchanged if only counts changed and the last write was less than
// CountsInterval ago. Pods have the counts, so a delay loses no information. The succeeded pods of
// a suspended job are deleted once their success is recorded, so that is recorded at once.
func (o *Outcome) delayCounts(observed *Observed) {
	recorded := &observed.Job.Status
	left := untilNextCounts(observed)
	switch {
	case left <= 0 || len(o.Events) > 0:
	case state.IsSuspended(observed.Job) && recorded.CompletedRanks != o.Status.CompletedRanks:
	case !onlyCountsDiffer(recorded, &o.Status) || equality.Semantic.DeepEqual(recorded, &o.Status):
	default:
		recorded.DeepCopyInto(&o.Status)
		o.requeueAfter(left)
	}
}

// delayFirstStatus leaves the first status of a job to the reconcile that observes its pods, if all
// of them were created now. Other jobs then get their pods sooner. Until then the status records
// only what follows from spec and pods. There is no delay if a resize restarts the job or the
// allocator places it.
func (o *Outcome) delayFirstStatus(observed *Observed, decision *Decision) {
	job := observed.Job
	isFirst := job.Status.Phase == "" && o.Status.Phase == v2alpha1.JobPending && len(o.Status.Conditions) == 1
	isIncomplete := len(decision.CreatePods) == 0 || decision.More || decision.HeldBack || decision.Waits || len(decision.Conflicts) > 0
	if !isFirst || isIncomplete || job.Spec.Preemptible || sizing.MayRestart(job) || state.IsCoordinatorLed(job) {
		return
	}
	job.Status.DeepCopyInto(&o.Status)
	o.Events = nil
	o.requeueAfter(CountsInterval)
}

func (o *Outcome) requeueAfter(delay time.Duration) {
	o.RequeueAfter = state.Sooner(o.RequeueAfter, delay)
}
