// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ranked gives the desired replicas of a worker-led job their ranks, and records which have succeeded.
package ranked

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/indexes"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// Replicas are the desired replicas with their ranks. Only Assign makes them, after the counts are recorded and
// the pods of earlier attempts are gone.
type Replicas struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	// Assignment is the rank of each desired replica. It is empty if no ranks are assigned.
	Assignment workload.Assignment
	// Growth are the replicas that were added to a queued job.
	Growth groups.Growth
	// Completed are the ranks that have succeeded.
	Completed ranks.Set
}

// Assign gives each desired replica a rank, and records the ranks, which of them have completed, and in which
// groups added replicas queue.
func Assign(out *state.Plan, job *observed.Facts) *Replicas {
	r := &Replicas{out: out, in: job.In, facts: job}
	r.Assignment = ranks.Assign(r.in.Job, r.facts.Indexes, r.out.Status(), r.in.PodNamed, r.facts.PeersOf)
	r.Assignment.ReplicaRestarts = r.out.Status().ReplicaRestarts
	r.recordRanks(scaling.NewExecution(out, job.In))
	r.Assignment.Subdomain, r.Assignment.Selector = r.subdomain(), r.selector()
	r.Completed = r.recordCompleted()
	r.Growth = r.recordGrowth()
	return r
}

// recordRanks records the rank assignment. So a replica keeps its rank even if all pods are gone at
// once, as between two attempts. Completed ranks then still belong to the same replicas. Ranks in
// the order of a single task need no record. Those of several tasks do, because a user may reorder
// the tasks. While no pod exists and none is desired, the record stays.
func (r *Replicas) recordRanks(execution scaling.Execution) {
	if r.out.Status().Scaling == nil || len(r.in.Pods) == 0 && (state.IsSuspended(r.in.Job) || state.IsUnplaced(r.in.Job)) {
		return
	}
	scaling := r.out.Scaling()
	scaling.Indexes, scaling.Ranks = indexes.Gapped(r.in.Job, r.facts.Indexes), nil
	replicas := r.Assignment.Replicas
	if !ranks.IsInOrder(replicas) || len(replicas) > 0 && replicas[0].Task != replicas[len(replicas)-1].Task {
		scaling.Ranks = ranks.Record(r.in.Job, replicas)
	}
	r.out.RecordScaling(&scaling)
	// A plan whose counts the spec has needs nothing else for them.
	if execution.IsExecuting() && len(r.facts.CountsOf(execution.Record())) == 0 {
		execution.RecordResized()
	}
}

// recordCompleted records which of the desired ranks have succeeded: those recorded already, and
// those whose pods have succeeded now. It returns them.
func (r *Replicas) recordCompleted() ranks.Set {
	completed := map[int32]bool{}
	r.out.Unrecorded = map[string]bool{}
	for i := range r.Assignment.Replicas {
		replica := &r.Assignment.Replicas[i]
		pod := r.in.PodNamed[replica.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := r.IsCompleted(replica)
		if shown || recorded {
			completed[replica.Rank] = true
		}
		if shown && !recorded {
			r.out.Unrecorded[replica.Pod] = true
		}
	}
	attempts := r.out.Attempts()
	attempts.CompletedRanks = ranks.Format(completed)
	r.out.RecordAttempts(attempts)
	return ranks.Read(attempts.CompletedRanks)
}

// subdomain returns the subdomain of the pods' addresses: that of active pods of this attempt,
// because peers find each other by it, else the job's service.
func (r *Replicas) subdomain() string {
	own := names.WorkerService(r.in.Job.Name)
	for _, pod := range r.in.Pods {
		if other := pod.Spec.Subdomain; other != "" && other != own && podstate.Active(pod) && !r.out.IsStale(pod) {
			return other
		}
	}
	return own
}

// selector returns the labels by which services select the existing pods.
func (r *Replicas) selector() map[string]string {
	selector := map[string]string{}
	if len(r.in.Pods) == 0 {
		return selector
	}
	for _, service := range r.in.Services {
		maps.Copy(selector, service.Spec.Selector)
	}
	return selector
}

// IsCompleted reports whether a replica's rank is recorded as succeeded. The records of
// an earlier attempt do not count.
func (r *Replicas) IsCompleted(replica *workload.Replica) bool {
	return r.in.Job.Status.Restarts == r.Assignment.Attempt && r.in.Job.Status.Reschedules == r.Assignment.Reschedule && r.facts.Recorded.Has(replica.Rank)
}

// IsDesired reports whether a pod belongs to a desired replica.
func (r *Replicas) IsDesired(pod *corev1.Pod) bool {
	return slices.ContainsFunc(r.Assignment.Replicas, func(replica workload.Replica) bool { return replica.Pod == pod.Name })
}
