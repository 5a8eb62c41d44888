// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observed has what follows from the observation of a worker-led job alone. No stage changes it.
package observed

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/indexes"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Facts are what follows from the observation of a worker-led job alone. No rule changes them.
type Facts struct {
	In *state.Input
	// Recorded are the completed ranks of the recorded status.
	Recorded ranks.Set
	// Counts are the desired replicas of each task.
	Counts sizing.Counts
	// Indexes are the indexes of the replicas of each task.
	Indexes [][]int32
	// Resizes are the tasks whose desired count changed since it was last acted on.
	Resizes []sizing.Resize
	// TooMany describes which counts exceed the maximum number of pods, or why no pods can be built
	// for them.
	TooMany []string
	// Grown are the recorded replicas that were added to a queued job.
	Grown groups.Growth
}

// Observe returns what follows from an observation.
func Observe(in *state.Input) *Facts {
	in.Restore(identity.Of(in))
	f := &Facts{In: in}
	f.readWorkers()
	return f
}

// readWorkers computes and checks the counts of a worker-led job before other data is sized by
// them. Schema and webhook reject a job with too many pods. The scale subresource and writes of the
// status bypass both.
func (f *Facts) readWorkers() {
	f.Recorded = ranks.Read(f.In.Job.Status.CompletedRanks)
	f.Grown = groups.Read(f.In.Job, &f.In.Job.Status)
	f.Counts = sizing.Wanted(f.counted())
	if state.IsFinished(&f.In.Job.Status) {
		return
	}
	if f.TooMany = sizing.Excess(&f.In.Observed, &f.Counts); len(f.TooMany) > 0 {
		return
	}
	f.Indexes = indexes.Desired(f.In.Job, f.Counts.ByTask)
	f.Resizes = sizing.FindResizes(f.In.Observed, &f.Counts)
	if f.In.Job.Status.Scaling == nil && sizing.IsStatusOfOperator(f.In.Job) {
		// No other count was requested: the pods are not created yet.
		f.Resizes = nil
	}
	f.TooMany = f.unbuildable()
}

// counted returns the job without a total that an earlier release wrote before the spec changed.
// The pods record such a total. Any other total is a request.
func (f *Facts) counted() *v2alpha1.DIJob {
	status := &f.In.Job.Status
	if status.Scaling != nil || !slices.ContainsFunc(f.In.Pods, func(pod *corev1.Pod) bool {
		return podstate.AnnotatedNumber(pod, names.AnnotationReplicas, 0) == status.Replicas && workload.IsOfEarlierRelease(pod)
	}) {
		return f.In.Job
	}
	job := *f.In.Job
	job.Status.Replicas = 0
	return &job
}

// IsCounted reports whether a pod's failure is recorded as a restart of its replica
// alone.
func (f *Facts) IsCounted(pod *corev1.Pod) bool {
	recorded := f.In.Job.Status.ReplicaRestarts[pod.Name]
	return podstate.PlausibleCount(podstate.ReplicaRestarts(pod), recorded) < recorded
}

// RestartMessage describes the restart that is in progress.
func (f *Facts) RestartMessage(restarts int32) string {
	return Ordinal(restarts, f.BackoffLimit()) + " is in progress"
}

// Ordinal describes which restart this is, with the limit if there is one.
func Ordinal(restart, limit int32) string {
	if limit < 0 {
		return fmt.Sprintf("restart %d", restart)
	}
	return fmt.Sprintf("restart %d of %d", restart, limit)
}

// BackoffLimit returns how often the job may restart, and -1 for without limit.
func (f *Facts) BackoffLimit() int32 {
	if f.In.Job.Spec.BackoffLimit != nil {
		return *f.In.Job.Spec.BackoffLimit
	}
	return policy.DefaultBackoffLimit
}

// IsExcessive reports whether the job desires more pods than its maximum, or pods of a resized job
// cannot be built. Nothing is created for such a job and its pods keep running, because a wrong
// number must not end a training run.
func (f *Facts) IsExcessive() bool {
	return len(f.TooMany) > 0
}

// unbuildable describes why no pods can be built for a job that a resize restarts, nil if they can.
// The job keeps its pods then.
func (f *Facts) unbuildable() []string {
	before := f.In.Job.Status.Scaling
	if len(f.In.Pods) == 0 || before == nil || before.LastReplicas == f.Counts.Total && maps.Equal(before.SpecReplicas, f.Counts.Spec) {
		return nil
	}
	if !f.In.Job.Spec.Preemptible && (len(f.Resizes) == 0 || f.WhyRestarted(&f.In.Job.Status) == "") {
		return nil
	}
	assignment := ranks.Assign(f.In.Job, f.Indexes, &v2alpha1.DIJobStatus{Scaling: &v2alpha1.ScalingStatus{}}, nil, f.PeersOf)
	builder := workload.NewBuilder(f.In.Job, f.In.Settings)
	for i := range assignment.Replicas {
		if i > 0 && assignment.Replicas[i].Task == assignment.Replicas[i-1].Task {
			continue
		}
		if _, err := builder.Worker(&assignment, &assignment.Replicas[i]); err != nil {
			return []string{err.Error()}
		}
	}
	return nil
}

// LastAllocation returns the digest to record for the allocation that is acted on. A suspended job
// keeps the recorded one. Its pods may still terminate when it is resumed, and then show whether
// they were placed elsewhere.
func (f *Facts) LastAllocation() string {
	if !f.In.Job.Spec.Preemptible {
		return ""
	}
	digest, before := placements.DigestOf(f.In.Job.Status.Allocation), f.In.Job.Status.Scaling
	if state.IsSuspended(f.In.Job) && before != nil && before.LastAllocation != digest {
		return ""
	}
	return digest
}

// PeersOf returns the list of peers that a pod was created with, "" if it is unknown.
func (f *Facts) PeersOf(pod *corev1.Pod) string {
	return workload.ToldNodes(pod, f.In.ConfigMapNamed)
}

// CountsOf returns the counts of a plan that the spec does not have.
func (f *Facts) CountsOf(plan *v2alpha1.PlanRecord) []state.Count {
	elastic := -1
	if f.In.Job.Spec.Elastic != nil && f.In.Job.Spec.Elastic.Replicas != nil {
		elastic = names.ElasticTask(&f.In.Job.Spec)
	}
	var counts []state.Count
	for i := range f.In.Job.Spec.Tasks {
		task := names.TaskName(&f.In.Job.Spec.Tasks[i])
		if wanted, isSet := plan.Replicas[task]; isSet && f.Counts.Spec[task] != wanted {
			counts = append(counts, state.Count{Task: i, IsElastic: i == elastic, Replicas: wanted})
		}
	}
	return counts
}
