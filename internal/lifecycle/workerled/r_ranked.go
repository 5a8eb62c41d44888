// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/scaling"
	"opendilab.org/di-orchestrator/internal/workload"
)

// subdomain returns the subdomain of the pods' addresses: that of active pods of this attempt,
// because peers find each other by it, else the job's service.
func (a *ranked) subdomain() string {
	own := names.WorkerService(a.in.Job.Name)
	for _, pod := range a.in.Pods {
		if other := pod.Spec.Subdomain; other != "" && other != own && podstate.Active(pod) && !a.out.IsStale(pod) {
			return other
		}
	}
	return own
}

// selector returns the labels by which services select the existing pods.
func (a *ranked) selector() map[string]string {
	selector := map[string]string{}
	if len(a.in.Pods) == 0 {
		return selector
	}
	for _, service := range a.in.Services {
		maps.Copy(selector, service.Spec.Selector)
	}
	return selector
}

// recordRanks records the rank assignment. So a replica keeps its rank even if all pods are gone at
// once, as between two attempts. Completed ranks then still belong to the same replicas. Ranks in
// the order of a single task need no record. Those of several tasks do, because a user may reorder
// the tasks. While no pod exists and none is desired, the record stays.
func (a *ranked) recordRanks(execution scaling.Execution) {
	if a.out.Status().Scaling == nil || len(a.in.Pods) == 0 && (state.IsSuspended(a.in.Job) || state.IsUnplaced(a.in.Job)) {
		return
	}
	scaling := a.out.Scaling()
	scaling.Indexes, scaling.Ranks = a.facts.gapped(), nil
	replicas := a.assignment.Replicas
	if !ranks.IsInOrder(replicas) || len(replicas) > 0 && replicas[0].Task != replicas[len(replicas)-1].Task {
		scaling.Ranks = ranks.Record(a.in.Job, replicas)
	}
	a.out.RecordScaling(&scaling)
	// A plan whose counts the spec has needs nothing else for them.
	if execution.IsExecuting() && len(a.facts.countsOf(execution.Record())) == 0 {
		execution.RecordResized()
	}
}

// ranked are the desired replicas with their ranks. Only assign makes it, after the counts are recorded and
// the pods of earlier attempts are gone.
type ranked struct {
	out   *state.Plan
	in    *state.Input
	facts *facts
	// assignment is the rank of each desired replica. It is empty if no ranks are assigned.
	assignment workload.Assignment
	// growth are the replicas that were added to a queued job.
	growth growth
	// completed are the ranks that have succeeded.
	completed ranks.Set
}

// assign gives each desired replica a rank, and records the ranks, which of them have completed, and in which
// groups added replicas queue.
func assign(out *state.Plan, job *facts) *ranked {
	r := &ranked{out: out, in: job.in, facts: job}
	r.assignment = ranks.Assign(r.in.Job, r.facts.indexes, r.out.Status(), r.in.PodNamed, r.facts.peersOf)
	r.assignment.ReplicaRestarts = r.out.Status().ReplicaRestarts
	r.recordRanks(scaling.NewExecution(out, job.in))
	r.assignment.Subdomain, r.assignment.Selector = r.subdomain(), r.selector()
	r.completed = r.recordCompleted()
	r.growth = r.recordGrowth()
	return r
}

// recordCompleted records which of the desired ranks have succeeded: those recorded already, and
// those whose pods have succeeded now. It returns them.
func (r *ranked) recordCompleted() ranks.Set {
	completed := map[int32]bool{}
	r.out.Unrecorded = map[string]bool{}
	for i := range r.assignment.Replicas {
		replica := &r.assignment.Replicas[i]
		pod := r.in.PodNamed[replica.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := r.isCompleted(replica)
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

// isCompleted reports whether a replica's rank is recorded as succeeded. The records of
// an earlier attempt do not count.
func (a *ranked) isCompleted(replica *workload.Replica) bool {
	return a.in.Job.Status.Restarts == a.assignment.Attempt && a.in.Job.Status.Reschedules == a.assignment.Reschedule && a.facts.recorded.Has(replica.Rank)
}
