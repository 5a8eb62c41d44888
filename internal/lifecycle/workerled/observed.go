// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// counted returns the job without a total that an earlier release wrote before the spec changed.
// The pods record such a total. Any other total is a request.
func (f *facts) counted() *v2alpha1.DIJob {
	status := &f.in.Job.Status
	if status.Scaling != nil || !slices.ContainsFunc(f.in.Pods, func(pod *corev1.Pod) bool {
		return podstate.AnnotatedNumber(pod, names.AnnotationReplicas, 0) == status.Replicas && workload.IsOfEarlierRelease(pod)
	}) {
		return f.in.Job
	}
	job := *f.in.Job
	job.Status.Replicas = 0
	return &job
}

// isCounted reports whether a pod's failure is recorded as a restart of its replica
// alone.
func (f *facts) isCounted(pod *corev1.Pod) bool {
	recorded := f.in.Job.Status.ReplicaRestarts[pod.Name]
	return podstate.PlausibleCount(podstate.ReplicaRestarts(pod), recorded) < recorded
}

func (f *facts) restartMessage(restarts int32) string {
	return ordinal(restarts, f.backoffLimit()) + " is in progress"
}

// ordinal describes which restart this is, with the limit if there is one.
func ordinal(restart, limit int32) string {
	if limit < 0 {
		return fmt.Sprintf("restart %d", restart)
	}
	return fmt.Sprintf("restart %d of %d", restart, limit)
}

func (f *facts) backoffLimit() int32 {
	if f.in.Job.Spec.BackoffLimit != nil {
		return *f.in.Job.Spec.BackoffLimit
	}
	return defaultBackoffLimit
}

// change identifies what a job desires, for removals that failed.
func (f *facts) change() string {
	plan := ""
	if scaling := f.in.Job.Status.Scaling; scaling != nil && scaling.Plan != nil {
		plan = scaling.Plan.UID
	}
	return fmt.Sprintf("%d/%d/%s", f.in.Job.Generation, f.counts.Total, plan)
}

// facts are what follows from the observation of a worker-led job alone. No rule changes them.
type facts struct {
	in *state.Input
	// recorded are the completed ranks of the recorded status.
	recorded ranks.Set
	// counts are the desired replicas of each task.
	counts sizing.Counts
	// indexes are the indexes of the replicas of each task.
	indexes [][]int32
	// resizes are the tasks whose desired count changed since it was last acted on.
	resizes []sizing.Resize
	// tooMany describes which counts exceed the maximum number of pods, or why no pods can be built
	// for them.
	tooMany []string
	// peers are what lists of peers name, by ConfigMap or text.
	peers map[string]*workload.Peers
	// grown are the recorded replicas that were added to a queued job.
	grown growth
}

// observe returns what follows from an observation.
func observe(in *state.Input) *facts {
	f := &facts{in: in, peers: map[string]*workload.Peers{}}
	in.Restore(f.identify)
	f.readWorkers()
	return f
}

// readWorkers computes and checks the counts of a worker-led job before other data is sized by
// them. Schema and webhook reject a job with too many pods. The scale subresource and writes of the
// status bypass both.
func (f *facts) readWorkers() {
	f.recorded = ranks.Read(f.in.Job.Status.CompletedRanks)
	f.grown = f.readGrowth(&f.in.Job.Status)
	f.counts = sizing.Wanted(f.counted())
	if state.IsFinished(&f.in.Job.Status) {
		return
	}
	if f.tooMany = sizing.Excess(&f.in.Observed, &f.counts); len(f.tooMany) > 0 {
		return
	}
	f.indexes = f.desiredIndexes()
	f.resizes = sizing.FindResizes(f.in.Observed, &f.counts)
	if f.in.Job.Status.Scaling == nil && sizing.IsStatusOfOperator(f.in.Job) {
		// No other count was requested: the pods are not created yet.
		f.resizes = nil
	}
	f.tooMany = f.unbuildable()
}

// isExcessive reports whether the job desires more pods than its maximum, or pods of a resized job
// cannot be built. Nothing is created for such a job and its pods keep running, because a wrong
// number must not end a training run.
func (f *facts) isExcessive() bool {
	return len(f.tooMany) > 0
}

// unbuildable describes why no pods can be built for a job that a resize restarts, nil if they can.
// The job keeps its pods then.
func (f *facts) unbuildable() []string {
	before := f.in.Job.Status.Scaling
	if len(f.in.Pods) == 0 || before == nil || before.LastReplicas == f.counts.Total && maps.Equal(before.SpecReplicas, f.counts.Spec) {
		return nil
	}
	if !f.in.Job.Spec.Preemptible && (len(f.resizes) == 0 || f.whyRestarted(&f.in.Job.Status) == "") {
		return nil
	}
	assignment := ranks.Assign(f.in.Job, f.indexes, &v2alpha1.DIJobStatus{Scaling: &v2alpha1.ScalingStatus{}}, nil, f.peersOf)
	builder := workload.NewBuilder(f.in.Job, f.in.Settings)
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

// lastAllocation returns the digest to record for the allocation that is acted on. A suspended job
// keeps the recorded one. Its pods may still terminate when it is resumed, and then show whether
// they were placed elsewhere.
func (f *facts) lastAllocation() string {
	if !f.in.Job.Spec.Preemptible {
		return ""
	}
	digest, before := digestOf(f.in.Job.Status.Allocation), f.in.Job.Status.Scaling
	if state.IsSuspended(f.in.Job) && before != nil && before.LastAllocation != digest {
		return ""
	}
	return digest
}
