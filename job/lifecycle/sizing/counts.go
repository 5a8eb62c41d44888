// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sizing computes how many replicas each task of a worker-led job has, and describes who
// changed that number.
package sizing

import (
	"cmp"
	"fmt"
	"maps"
	"math"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Counts are the desired replicas of each task of a worker-led job.
type Counts struct {
	// Spec are the counts in the spec, by task name.
	Spec map[string]int32
	// ByTask are the counts to act on, by the index of the task.
	ByTask []int32
	Total  int32
	// pods is the total, even if it exceeds int32. It is compared with the limit before anything is
	// sized by the other fields.
	pods int64
	// asked is the requested count of the elastic task, before it was clamped.
	asked int32
	// byStatus is set if status.replicas decides, and not the spec.
	byStatus bool
}

// Wanted returns the spec's counts. If another writer changed status.replicas since the operator
// last wrote it, that change adjusts the elastic task's count. A change of the spec's counts
// overrides it, unless status.replicas was written later.
func Wanted(job *v2alpha1.DIJob) Counts {
	wanted := Counts{Spec: map[string]int32{}, ByTask: make([]int32, len(job.Spec.Tasks))}
	elastic := names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		wanted.ByTask[i] = specCount(job, i, elastic)
		wanted.Spec[names.TaskName(&job.Spec.Tasks[i])] = wanted.ByTask[i]
	}
	wanted.pods = limits.Total(wanted.ByTask...)
	if elastic >= 0 {
		count := int64(wanted.ByTask[elastic])
		// A writer that does not know the field leaves a total of 0. A total that exists before the
		// operator has recorded any is a request, too.
		scaling := job.Status.Scaling
		switch {
		case job.Spec.Preemptible && len(job.Status.Allocation) > 0:
			count += int64(len(job.Status.Allocation)) - wanted.pods
		case job.Spec.Preemptible:
		case job.Status.Replicas > 0 && (scaling == nil || maps.Equal(scaling.SpecReplicas, wanted.Spec) || isStatusLater(job)):
			count += int64(job.Status.Replicas) - wanted.pods
			wanted.byStatus = scaling == nil || job.Status.Replicas != scaling.LastReplicas
		}
		wanted.asked = asCount(count)
		if !job.Spec.Preemptible {
			count = clamp(count, job.Spec.Elastic)
		}
		count = max(count, 0)
		wanted.pods += count - int64(wanted.ByTask[elastic])
		wanted.ByTask[elastic] = asCount(count)
	}
	wanted.Total = asCount(wanted.pods)
	return wanted
}

// asCount clamps a sum to int32; a sum beyond it exceeds every limit anyway.
func asCount(sum int64) int32 {
	return int32(max(min(sum, math.MaxInt32), math.MinInt32))
}

// maxPods returns how many pods a job may have.
func maxPods(o *state.Observed) int32 {
	return cmp.Or(o.Settings.MaxPods, limits.PodsPerJob)
}

// Excess describes which counts give a job more pods than it may have, nil if none do.
func Excess(o *state.Observed, wanted *Counts) []string {
	most := maxPods(o)
	if wanted.pods <= int64(most) {
		return nil
	}
	var found []string
	for _, each := range limits.CheckCounts(&o.Job.Spec, most) {
		found = append(found, each.String())
	}
	if len(found) > 0 {
		return found
	}
	field, value := "status.replicas", int64(o.Job.Status.Replicas)
	if o.Job.Spec.Preemptible {
		field, value = "status.allocation", int64(len(o.Job.Status.Allocation))
	}
	return []string{fmt.Sprintf("%s: %d: must be at most %d, the maximum number of pods of a job here", field, value, most)}
}

// specCount returns the count of a task in the spec; elastic.replicas overrides it.
func specCount(job *v2alpha1.DIJob, index, elastic int) int32 {
	if index == elastic && job.Spec.Elastic != nil && job.Spec.Elastic.Replicas != nil {
		return max(*job.Spec.Elastic.Replicas, 0)
	}
	if replicas := job.Spec.Tasks[index].Replicas; replicas != nil {
		return max(*replicas, 0)
	}
	return 1
}

func clamp(count int64, elastic *v2alpha1.Elastic) int64 {
	if elastic != nil && elastic.MaxReplicas != nil {
		count = min(count, int64(*elastic.MaxReplicas))
	}
	if elastic != nil && elastic.MinReplicas != nil {
		count = max(count, int64(*elastic.MinReplicas))
	}
	return max(count, 0)
}

// Range returns the index of the task of a preemptible job that the allocator may
// resize, and its bounds; -1 if there is none. Without bounds the range is just its
// count.
func Range(job *v2alpha1.DIJob) (elastic int, least, most int32) {
	elastic = names.ElasticTask(&job.Spec)
	if elastic < 0 {
		return -1, 0, 0
	}
	least = specCount(job, elastic, elastic)
	most = least
	if bounds := job.Spec.Elastic; bounds != nil {
		if bounds.MinReplicas != nil {
			least = *bounds.MinReplicas
		}
		if bounds.MaxReplicas != nil {
			most = *bounds.MaxReplicas
		}
	}
	return elastic, min(least, most), most
}

// Count returns how many replicas of a task the spec requests.
func Count(job *v2alpha1.DIJob, task int) int32 {
	return specCount(job, task, names.ElasticTask(&job.Spec))
}
