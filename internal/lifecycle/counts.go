// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"math"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// counts are how many replicas of each task a worker-led job is to have.
type counts struct {
	// spec are the counts that the spec says, by task name.
	spec map[string]int32
	// byTask are the counts to act on, by the index of the task.
	byTask []int32
	total  int32
	// pods is the total also where that is no int32: nothing is sized by the others
	// before it was compared with what a job may have.
	pods int64
	// asked is what the elastic task was to have before its bounds were kept to.
	asked int32
	// byStatus says that status.replicas decides, and not the spec.
	byStatus bool
}

// wantedCounts returns the spec's counts, the elastic task's changed by what
// somebody else made of status.replicas since the operator last wrote it. A
// change of the spec's counts ends that, unless status.replicas was written later.
func wantedCounts(job *v2alpha1.DIJob) counts {
	wanted := counts{spec: map[string]int32{}, byTask: make([]int32, len(job.Spec.Tasks))}
	elastic := names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		wanted.byTask[i] = specCount(job, i, elastic)
		wanted.spec[names.TaskName(&job.Spec.Tasks[i])] = wanted.byTask[i]
	}
	wanted.pods = limits.Total(wanted.byTask...)
	if elastic >= 0 {
		count := int64(wanted.byTask[elastic])
		// A total of 0 is what a writer leaves who does not know the field. One
		// that is there before the operator has recorded any was asked for, too.
		scaling := job.Status.Scaling
		switch {
		case job.Spec.Preemptible && len(job.Status.Allocation) > 0:
			count += int64(len(job.Status.Allocation)) - wanted.pods
		case job.Spec.Preemptible:
		case job.Status.Replicas > 0 && (scaling == nil || maps.Equal(scaling.SpecReplicas, wanted.spec) || isStatusLater(job)):
			count += int64(job.Status.Replicas) - wanted.pods
			wanted.byStatus = scaling == nil || job.Status.Replicas != scaling.LastReplicas
		}
		wanted.asked = asCount(count)
		if !job.Spec.Preemptible {
			count = clamp(count, job.Spec.Elastic)
		}
		count = max(count, 0)
		wanted.pods += count - int64(wanted.byTask[elastic])
		wanted.byTask[elastic] = asCount(count)
	}
	wanted.total = asCount(wanted.pods)
	return wanted
}

// asCount returns a sum as a count; one that is none is beyond every limit, too.
func asCount(sum int64) int32 {
	return int32(max(min(sum, math.MaxInt32), math.MinInt32))
}

// maxPods is how many pods a job may have.
func (o *Observed) maxPods() int32 {
	return cmp.Or(o.Settings.MaxPods, limits.PodsPerJob)
}

// excess says which counts give a job more pods than it may have, nil where none do.
func (o *Observed) excess(wanted *counts) []string {
	most := o.maxPods()
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
	return []string{fmt.Sprintf("%s: %d: must be at most %d, as many pods as a job may have here", field, value, most)}
}

// isExcessive reports whether the job is to have more pods than it may have, or is
// resized to pods that cannot be made. Of such a
// job nothing is made, and what it has goes on: a slip of who scales it ends nothing.
func (in *input) isExcessive() bool {
	return len(in.tooMany) > 0
}

// specCount returns what the spec says of a task; elastic.replicas wins.
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

// Range returns which task of a preemptible job the allocator may resize, as
// its index, and between which counts; -1 where it may resize none. A job
// without bounds has the range of just its count.
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

// Count returns how many replicas of a task the spec asks for.
func Count(job *v2alpha1.DIJob, task int) int32 {
	return specCount(job, task, names.ElasticTask(&job.Spec))
}
