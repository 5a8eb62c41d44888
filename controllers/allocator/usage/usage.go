// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage accounts what a job used of the cluster: how it is stored in the status of the job, how restarts
// count, and when it is stored again.
package usage

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
)

const (
	// RefreshInterval is the minimum time between two writes of a job while its placement stays.
	RefreshInterval = time.Minute
	// maxUnstored is how long the usage alone is at most not stored. Until then the next round derives it
	// from the stored one.
	maxUnstored = 10 * time.Minute
	// maxRestart is the maximum duration of a measured restart. A longer one is not measured: its pods wait
	// for something else.
	maxRestart = time.Hour
	// latestShare is the weight of the latest restart in the average duration.
	latestShare = 0.3
	// maxStored is the largest stored number: every JSON client reads it exactly.
	maxStored = 1 << 53
)

// Of returns the stored usage of a job.
func Of(status *v2alpha1.DIJobStatus) allocation.Usage {
	stored := status.AllocationUsage
	if stored == nil {
		return allocation.Usage{}
	}
	usage := allocation.Usage{
		Work: fromThousandths(stored.WorkMilliseconds), Useful: fromThousandths(stored.UsefulThousandths),
		Expected: fromThousandths(stored.ExpectedThousandths),
		Attained: fromThousandths(stored.AttainedMilliseconds), RunFor: fromThousandths(stored.TrainedMilliseconds),
		Restarts: int(stored.Restarts), RestartCost: time.Duration(stored.RestartMilliseconds) * time.Millisecond,
		Restarting: fromThousandths(stored.RemainingRestartMilliseconds),
	}
	if stored.AccountedAt != nil {
		usage.At = stored.AccountedAt.Time
	}
	return usage
}

// store sets the stored usage.
func store(stored *v2alpha1.AllocationUsage, usage *allocation.Usage) {
	stored.AccountedAt = nil
	if !usage.At.IsZero() {
		stored.AccountedAt = microTime(usage.At)
	}
	stored.WorkMilliseconds, stored.UsefulThousandths = thousandths(usage.Work), thousandths(usage.Useful)
	stored.ExpectedThousandths = thousandths(usage.Expected)
	stored.AttainedMilliseconds, stored.TrainedMilliseconds = thousandths(usage.Attained), thousandths(usage.RunFor)
	stored.Restarts = int32(min(max(usage.Restarts, 0), math.MaxInt32))
	stored.RestartMilliseconds = max(usage.RestartCost.Milliseconds(), 0)
	stored.RemainingRestartMilliseconds = thousandths(usage.Restarting)
}

func fromThousandths(stored int64) float64 { return float64(stored) / 1000 }

// thousandths returns a number as it is stored. A policy's number that is none is stored as 0.
func thousandths(value float64) int64 {
	if !(value > 0) {
		return 0
	}
	return int64(min(math.Round(value*1000), maxStored))
}

func microTime(at time.Time) *metav1.MicroTime {
	stored := metav1.NewMicroTime(at.Truncate(time.Microsecond))
	return &stored
}

// Merge returns the usage to store: the decided one with the measured cost of restarts. A policy that
// accounts no usage keeps the previous one, and its restarts are counted.
func Merge(measured, decided *allocation.Usage, restarts bool) allocation.Usage {
	if decided.At.IsZero() {
		next := *measured
		if restarts {
			next.Restarts++
		}
		return next
	}
	next := *decided
	next.RestartCost = measured.RestartCost
	return next
}

// Change is what a new placement does to a job.
type Change struct {
	// Policy is the name of the policy that places it.
	Policy string
	// Restarts reports whether all replicas restart. IsMeasured reports whether the restart before has ended.
	Restarts, IsMeasured bool
}

// After returns the usage to store with a placement of a policy; nil if there is none.
func After(job *v2alpha1.DIJob, placement *allocation.Placement, by Change, now time.Time) *v2alpha1.AllocationUsage {
	next := v2alpha1.AllocationUsage{}
	if stored := job.Status.AllocationUsage; stored != nil {
		next = *stored.DeepCopy()
	}
	if placement.Usage != (allocation.Usage{}) {
		store(&next, &placement.Usage)
	}
	next.Restarting = next.Restarting && !by.IsMeasured
	switch {
	case slices.Equal(job.Status.Allocation, placement.Nodes):
	case next.Restarting && len(job.Status.Allocation) > 0 && len(placement.Nodes) > 0 && !by.Restarts:
		// A live resize does not end the restart before it.
		next.Policy = by.Policy
	default:
		next.PlacedAt, next.Restarting = nil, by.Restarts
		if len(placement.Nodes) > 0 {
			next.PlacedAt, next.Policy = microTime(now), by.Policy
		}
	}
	if next == (v2alpha1.AllocationUsage{}) {
		return nil
	}
	return &next
}

// Restart is the end of a restart.
type Restart struct {
	End time.Time
	// IsMeasured reports whether the end is known, so that the duration counts.
	IsMeasured bool
}

// EndOfRestart returns how the last restart of a job ended: its replicas became ready, or it reported again.
// It returns false while the restart lasts, and for a job that is not restarting.
func EndOfRestart(job *v2alpha1.DIJob, pods []*corev1.Pod, reportedAt, now time.Time) (Restart, bool) {
	stored := job.Status.AllocationUsage
	if stored == nil || !stored.Restarting || stored.PlacedAt == nil {
		return Restart{}, false
	}
	if since, ready := placements.ReadySince(job, pods); ready {
		return Restart{End: since, IsMeasured: true}, true
	}
	// Until the pods of the former placement are gone, a report may be theirs.
	current := placements.CurrentPods(job, pods)
	if reportedAt.After(stored.PlacedAt.Time) && len(current) > 0 && len(current) == len(pods) {
		return Restart{End: reportedAt, IsMeasured: true}, true
	}
	return Restart{End: now}, now.Sub(stored.PlacedAt.Time) > maxRestart
}

// averageRestart returns the average duration of restarts after another one. Zero is no average yet.
func averageRestart(average, latest time.Duration) time.Duration {
	latest = min(max(latest, 0), maxRestart)
	if average == 0 {
		return latest
	}
	return average + time.Duration(latestShare*float64(latest-average))
}

// Adjust corrects the accounted usage by what is known of a restart: it lasts until it has ended, however
// long the restarts before took.
func Adjust(usage *allocation.Usage, stored *v2alpha1.AllocationUsage, ended *Restart, now time.Time) {
	switch {
	case ended != nil:
		usage.Restarting = min(usage.Restarting, max(ended.End.Sub(usage.At).Seconds(), 0))
		if ended.IsMeasured {
			usage.RestartCost = averageRestart(usage.RestartCost, ended.End.Sub(stored.PlacedAt.Time))
		}
	case stored != nil && stored.Restarting && !usage.At.IsZero():
		usage.Restarting = max(usage.Restarting, now.Sub(usage.At).Seconds())
	}
}

// PlacedFor returns how long a job has had its placement; 0 if that is unknown.
func PlacedFor(job *v2alpha1.DIJob, now time.Time) time.Duration {
	if at := PlacedAt(job); !at.IsZero() {
		return now.Sub(at)
	}
	return 0
}

// PlacedAt returns when a job got its placement, by the clock of the operator that placed it; zero if that is unknown.
func PlacedAt(job *v2alpha1.DIJob) time.Time {
	if usage := job.Status.AllocationUsage; usage != nil && usage.PlacedAt != nil {
		return usage.PlacedAt.Time
	}
	if allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated); allocated != nil && allocated.LastUpdateTime != nil {
		return allocated.LastUpdateTime.Time
	}
	return time.Time{}
}

// WrittenAt returns when the allocator last wrote a job's status.
func WrittenAt(job *v2alpha1.DIJob) time.Time {
	var last time.Time
	if allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated); allocated != nil && allocated.LastUpdateTime != nil {
		last = allocated.LastUpdateTime.Time
	}
	if usage := job.Status.AllocationUsage; usage != nil && usage.AccountedAt != nil && usage.AccountedAt.After(last) {
		last = usage.AccountedAt.Time
	}
	return last
}

// RefreshAfter returns the minimum time since the last write of a job whose placement stays. If only its usage
// changes, that is the time for which its stored usage has trained: the work of a job that ends meanwhile is
// at most twice the stored one.
func RefreshAfter(job *v2alpha1.DIJob, placement *allocation.Placement, measured bool) time.Duration {
	stored := job.Status.AllocationUsage
	allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated)
	if stored == nil || measured || allocated == nil || allocated.Message != placement.Message || allocated.Reason != placement.Reason {
		return RefreshInterval
	}
	trained := time.Duration(min(stored.TrainedMilliseconds, maxUnstored.Milliseconds())) * time.Millisecond
	return max(trained, RefreshInterval)
}

// ByWriting returns jobs in the order of their last writes, so that each is refreshed in turn.
func ByWriting(jobs []*v2alpha1.DIJob) []*v2alpha1.DIJob {
	sorted := slices.Clone(jobs)
	slices.SortFunc(sorted, func(a, b *v2alpha1.DIJob) int {
		return cmp.Or(WrittenAt(a).Compare(WrittenAt(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}
