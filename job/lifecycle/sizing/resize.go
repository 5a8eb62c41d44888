// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sizing

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Resize is a task whose desired count changed.
type Resize struct {
	Task     string
	From, To int32
}

// IsResized reports whether the desired counts of a worker-led job changed. The job's managed
// fields record who changed them and when. The cache drops these, so the caller must read them
// live.
func IsResized(observed state.Observed) bool {
	job := observed.Job
	if state.IsCoordinatorLed(job) || state.IsLeftAlone(job) || state.IsFinished(&job.Status) || job.Spec.Preemptible {
		return false
	}
	wanted := Wanted(job)
	if Excess(&observed, &wanted) != nil {
		return false
	}
	return isContested(job, wanted.Spec) || len(FindResizes(observed, &wanted)) > 0
}

// isContested reports whether both the counts of the spec and the total of the status
// were written since the last reconcile.
func isContested(job *v2alpha1.DIJob, spec map[string]int32) bool {
	scaling := job.Status.Scaling
	return scaling != nil && job.Status.Replicas > 0 && job.Status.Replicas != scaling.LastReplicas && !maps.Equal(scaling.SpecReplicas, spec)
}

// FindResizes compares the desired counts with those that were acted on last. The allocation sizes
// a preemptible job, which the rule for reschedules covers.
func FindResizes(observed state.Observed, wanted *Counts) []Resize {
	job := observed.Job
	before := formerCounts(observed, wanted)
	if job.Spec.Preemptible || before == nil {
		return nil
	}
	now := map[string]int32{}
	for task := range before {
		now[task] = 0
	}
	for i := range job.Spec.Tasks {
		now[names.TaskName(&job.Spec.Tasks[i])] = wanted.ByTask[i]
	}
	var found []Resize
	for _, task := range slices.Sorted(maps.Keys(now)) {
		if before[task] != now[task] {
			found = append(found, Resize{Task: task, From: before[task], To: now[task]})
		}
	}
	return found
}

// formerCounts returns the counts that were acted on last, by task name; nil if there
// are none, or they are unknown.
func formerCounts(observed state.Observed, wanted *Counts) map[string]int32 {
	job := observed.Job
	elastic := names.ElasticTask(&job.Spec)
	scaling := job.Status.Scaling
	if scaling == nil {
		return countsOfPods(observed, wanted, elastic)
	}
	before, total := maps.Clone(scaling.SpecReplicas), int32(0)
	for _, count := range before {
		total += count
	}
	if elastic >= 0 && before != nil {
		before[names.TaskName(&job.Spec.Tasks[elastic])] += scaling.LastReplicas - total
	}
	return before
}

// countsOfPods returns counts if their record is lost. For example, a client built for v1.1.3
// updated the status and dropped the fields that it does not know. The pods then show only whether
// the elastic task was resized.
func countsOfPods(observed state.Observed, wanted *Counts, elastic int) map[string]int32 {
	job := observed.Job
	if elastic < 0 || job.Status.Replicas == 0 {
		return nil
	}
	before := map[string]int32{}
	for i := range job.Spec.Tasks {
		if i != elastic {
			before[names.TaskName(&job.Spec.Tasks[i])] = wanted.ByTask[i]
		}
	}
	task := names.TaskName(&job.Spec.Tasks[elastic])
	for _, pod := range observed.Pods {
		if pod.Labels[names.LabelTaskName] == task && !podstate.Terminating(pod) {
			before[task]++
		}
	}
	if before[task] == 0 {
		return nil
	}
	return before
}

// Describe describes how a task was resized, and by whom.
func (r *Resize) Describe(job *v2alpha1.DIJob, wanted *Counts) string {
	text := fmt.Sprintf("%d -> %s of task %s", r.From, english.Plural(int(r.To), "replica", ""), r.Task)
	elastic := names.ElasticTask(&job.Spec)
	isElastic := elastic >= 0 && names.TaskName(&job.Spec.Tasks[elastic]) == r.Task
	if isElastic && wanted.asked != r.To {
		text += fmt.Sprintf(" (%d asked for)", wanted.asked)
	}
	return text + ", " + r.writer(job, wanted, isElastic).String()
}

// writer returns who last wrote the field that resized the task.
func (r *Resize) writer(job *v2alpha1.DIJob, wanted *Counts, isElastic bool) writer {
	var before map[string]int32
	if job.Status.Scaling != nil {
		before = job.Status.Scaling.SpecReplicas
	}
	switch {
	case isElastic && wanted.byStatus:
		return statusWriter(job)
	case isElastic && before[r.Task] != wanted.Spec[r.Task]:
		return elasticWriter(job, names.ElasticTask(&job.Spec))
	case !maps.Equal(before, wanted.Spec):
		return tasksWriter(job)
	}
	return boundsWriter(job, r.To)
}

// WhyRestarted describes why resizes restart all replicas, "" if they do not.
func WhyRestarted(job *v2alpha1.DIJob, resizes []Resize) string {
	switch {
	case job.Spec.Elastic != nil && job.Spec.Elastic.OnResize == v2alpha1.OnResizeRestart:
		return "spec.elastic.onResize: Restart"
	case slices.Contains(job.Spec.ClusterSpec, v2alpha1.ClusterSpecTorch):
		// The world size and its ranks are fixed while the job runs.
		return "spec.clusterSpec: Torch"
	case names.HasDynamicWorkers(&job.Spec) && isOnlyElastic(job, resizes):
		// Only the worker itself reads its entry in TF_CONFIG, and the launcher of MPI discovers its hosts.
	case names.HasMPI(&job.Spec):
		// mpirun reads the hostfile once.
		return "spec.clusterSpec: MPI"
	case slices.Contains(job.Spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow):
		// The cluster is fixed while the job runs.
		return "spec.clusterSpec: TensorFlow"
	}
	return ""
}

// isOnlyElastic reports whether no task but the elastic one is resized.
func isOnlyElastic(job *v2alpha1.DIJob, resizes []Resize) bool {
	task := names.TaskName(&job.Spec.Tasks[names.ElasticTask(&job.Spec)])
	return !slices.ContainsFunc(resizes, func(resize Resize) bool { return resize.Task != task })
}

// MayRestart reports whether a resize may restart all replicas.
func MayRestart(job *v2alpha1.DIJob) bool {
	return len(job.Spec.ClusterSpec) > 0 || WhyRestarted(job, nil) != ""
}

// LacksRemoved reports whether a job was shrunk, and the cache lacks some of its former pods. The next status forgets
// the former counts.
func LacksRemoved(observed state.Observed) bool {
	scaling := observed.Job.Status.Scaling
	if scaling == nil || state.IsFinished(&observed.Job.Status) || len(observed.Pods) >= int(scaling.LastReplicas) {
		return false
	}
	wanted := Wanted(observed.Job)
	if Excess(&observed, &wanted) != nil {
		return false
	}
	return wanted.Total < scaling.LastReplicas ||
		slices.ContainsFunc(FindResizes(observed, &wanted), func(resize Resize) bool { return resize.To < resize.From })
}
