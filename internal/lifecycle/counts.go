// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// counts are how many replicas of each task a worker-led job is to have.
type counts struct {
	// spec are the counts that the spec says, by task name.
	spec map[string]int32
	// byTask are the counts to act on, by the index of the task.
	byTask []int32
	total  int32
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
		wanted.total += wanted.byTask[i]
	}
	if elastic >= 0 {
		count := wanted.byTask[elastic]
		// A total of 0 is what a writer leaves who does not know the field. One
		// that is there before the operator has recorded any was asked for, too.
		scaling := job.Status.Scaling
		switch {
		case job.Spec.Preemptible && len(job.Status.Allocation) > 0:
			count += int32(len(job.Status.Allocation)) - wanted.total
		case job.Spec.Preemptible:
		case job.Status.Replicas > 0 && (scaling == nil || maps.Equal(scaling.SpecReplicas, wanted.spec) || isStatusLater(job)):
			count += job.Status.Replicas - wanted.total
			wanted.byStatus = scaling == nil || job.Status.Replicas != scaling.LastReplicas
		}
		wanted.asked = count
		if !job.Spec.Preemptible {
			count = clamp(count, job.Spec.Elastic)
		}
		count = max(count, 0)
		wanted.total += count - wanted.byTask[elastic]
		wanted.byTask[elastic] = count
	}
	return wanted
}

// specCount returns what the spec says of a task; elastic.replicas wins.
func specCount(job *v2alpha1.DIJob, index, elastic int) int32 {
	if index == elastic && job.Spec.Elastic != nil && job.Spec.Elastic.Replicas != nil {
		return *job.Spec.Elastic.Replicas
	}
	if replicas := job.Spec.Tasks[index].Replicas; replicas != nil {
		return *replicas
	}
	return 1
}

func clamp(count int32, elastic *v2alpha1.Elastic) int32 {
	if elastic != nil && elastic.MaxReplicas != nil {
		count = min(count, *elastic.MaxReplicas)
	}
	if elastic != nil && elastic.MinReplicas != nil {
		count = max(count, *elastic.MinReplicas)
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
