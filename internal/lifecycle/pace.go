// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// CountsInterval is how often at most a status is written of which only counts
// have changed. Whatever else changes is written at once, with its counts.
const CountsInterval = time.Second

// PaceStatus leaves the status as it is recorded where only counts are another
// and the last write was less than an interval ago. Counts are told by the
// pods, so that nothing is lost but time. The pods of a suspended job that have
// succeeded go once that is recorded, so it is recorded at once.
func (d *Decision) PaceStatus(observed *Observed) {
	recorded := &observed.Job.Status
	left := untilNextCounts(observed)
	switch {
	case left <= 0 || len(d.Events) > 0:
	case IsSuspended(observed.Job) && recorded.CompletedRanks != d.Status.CompletedRanks:
	case !onlyCountsDiffer(recorded, &d.Status) || equality.Semantic.DeepEqual(recorded, &d.Status):
	default:
		d.Status = *recorded.DeepCopy()
		d.requeueAfter(left)
	}
}

// AwaitCreated leaves the first status of a job to the pass that sees its pods,
// where all of them were created in this one and other jobs wait for theirs: that
// saves each a write, and brings the pods of all forward. Nothing is recorded by then that does not
// follow from spec and pods, where a resize restarts nobody and nothing is placed.
func (d *Decision) AwaitCreated(observed *Observed) {
	job := observed.Job
	isNew := job.Status.Phase == "" && d.Status.Phase == v2alpha1.JobPending && len(d.Status.Conditions) == 1
	if !isNew || len(d.CreatePods) == 0 || d.More || d.HeldBack || d.Waits || len(d.Conflicts) > 0 || job.Spec.Preemptible || mayRestartOnResize(job) || IsCoordinatorLed(job) {
		return
	}
	d.Status, d.Events = *job.Status.DeepCopy(), nil
	d.requeueAfter(CountsInterval)
}

// PaceMembership does the same for the status of the Membership, of which the
// phases of pods are what the counts are in a job's.
func (d *Decision) PaceMembership(observed *Observed) {
	left := untilNextCounts(observed)
	if left > 0 && d.MembershipStatus != nil && observed.Membership != nil && onlyPhasesDiffer(&observed.Membership.Status, d.MembershipStatus) {
		d.MembershipStatus = nil
		d.requeueAfter(left)
	}
}

// untilNextCounts returns in how long counts alone may be written. A clock that
// was set back does not hold them up.
func untilNextCounts(observed *Observed) time.Duration {
	since := observed.Now.Sub(observed.Written)
	if observed.Written.IsZero() || since < 0 {
		return 0
	}
	return CountsInterval - since
}

func onlyCountsDiffer(recorded, wanted *v2alpha1.DIJobStatus) bool {
	counted := *recorded
	counted.TaskStatus, counted.ReadyReplicas = wanted.TaskStatus, wanted.ReadyReplicas
	counted.ElasticReplicas, counted.CompletedRanks = wanted.ElasticReplicas, wanted.CompletedRanks
	counted.Conditions = sayingOfRunning(recorded, wanted)
	return equality.Semantic.DeepEqual(&counted, wanted)
}

// sayingOfRunning returns the recorded conditions with what the other status says
// of a job that runs as before: whether all are ready follows from the counts.
func sayingOfRunning(recorded, wanted *v2alpha1.DIJobStatus) []v2alpha1.DIJobCondition {
	said := conditions.Find(wanted, string(v2alpha1.JobRunning))
	result := slices.Clone(recorded.Conditions)
	for i := range result {
		if said != nil && result[i].Type == said.Type && result[i].Status == said.Status {
			result[i].Message, result[i].LastUpdateTime = said.Message, said.LastUpdateTime
		}
	}
	return result
}

func onlyPhasesDiffer(recorded, wanted *v2alpha1.MembershipStatus) bool {
	if len(recorded.Slots) != len(wanted.Slots) {
		return false
	}
	phased := *recorded
	phased.Slots = slices.Clone(recorded.Slots)
	for i := range phased.Slots {
		phased.Slots[i].Phase = wanted.Slots[i].Phase
	}
	return equality.Semantic.DeepEqual(&phased, wanted)
}

func (d *Decision) requeueAfter(delay time.Duration) {
	if d.RequeueAfter == 0 || delay < d.RequeueAfter {
		d.RequeueAfter = delay
	}
}
