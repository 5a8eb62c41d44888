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

// CountsInterval is the minimum interval between writes of a status in which only
// counts changed. Any other change is written at once, with its counts.
const CountsInterval = time.Second

// delayPhases leaves the status of the Membership as recorded if only phases of pods
// changed and the last write was less than CountsInterval ago.
func delayPhases(d *Decision, observed *Observed) {
	left := untilNextCounts(observed)
	if left > 0 && d.MembershipStatus != nil && observed.Membership != nil && onlyPhasesDiffer(&observed.Membership.Status, d.MembershipStatus) {
		d.MembershipStatus = nil
		d.Requeue(left)
	}
}

// untilNextCounts returns after how long a change of counts alone may be written. A clock that was
// set back does not extend the delay.
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
	counted.Summary = wanted.Summary
	counted.Conditions = withRunningMessage(recorded, wanted)
	return equality.Semantic.DeepEqual(&counted, wanted)
}

// withRunningMessage returns the recorded conditions with the message of the other status, for a
// job that still runs. Whether all replicas are ready follows from the counts.
func withRunningMessage(recorded, wanted *v2alpha1.DIJobStatus) []v2alpha1.DIJobCondition {
	running := conditions.Find(wanted, string(v2alpha1.JobRunning))
	result := slices.Clone(recorded.Conditions)
	for i := range result {
		if running != nil && result[i].Type == running.Type && result[i].Status == running.Status {
			result[i].Message, result[i].LastUpdateTime = running.Message, running.LastUpdateTime
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
