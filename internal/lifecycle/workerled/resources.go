// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// sized returns a replica with its pod, as the rules of resources know it.
func (f *facts) sized(replica *workload.Replica) rightsize.Replica {
	id := workload.ReplicaID{Task: names.TaskName(&f.in.Job.Spec.Tasks[replica.Task]), Index: replica.Index}
	return rightsize.Replica{ReplicaID: id, Pod: f.in.PodNamed[replica.Pod]}
}

// sizedReplicas returns the replicas that have pods and have not completed.
func (a *ranked) sizedReplicas() iter.Seq[rightsize.Replica] {
	return func(yield func(rightsize.Replica) bool) {
		for i := range a.assignment.Replicas {
			replica := a.facts.sized(&a.assignment.Replicas[i])
			if replica.Pod != nil && !a.completed.Has(a.assignment.Replicas[i].Rank) && !yield(replica) {
				return
			}
		}
	}
}

// replicaOf returns the task and index of the replica with a pod's name; false if the job has no such task.
func (f *facts) replicaOf(pod string) (workload.Replica, bool) {
	for i := range f.in.Job.Spec.Tasks {
		if index, isOf := ranks.IndexOf(f.in.Job.Name, names.TaskName(&f.in.Job.Spec.Tasks[i]), pod); isOf {
			return workload.Replica{Task: i, Index: index, Pod: pod}, true
		}
	}
	return workload.Replica{}, false
}

// hasGrown reports whether a pod was out of memory, and its replica's next pod has more memory.
func (f *facts) hasGrown(sizes *rightsize.Rules, replica *workload.Replica, pod *corev1.Pod) bool {
	if !state.HasFailed(f.in.Job, pod) || !podstate.OutOfMemory(pod) {
		return false
	}
	sized := f.sized(replica)
	return sizes.HasGrown(&sized)
}

// growMemory records more memory for replicas whose main container was killed because it used more
// than its limit. This is no failure that counts, up to the maximum of memory and of attempts. A
// policy that fails the job for any of the failures comes first.
func (f *failing) growMemory() state.Result {
	if f.in.Job.Spec.Autoscale == nil || f.in.Job.Spec.Autoscale.Memory == nil {
		return state.Continue
	}
	failures := f.failures()
	if slices.ContainsFunc(failures, func(failed failure) bool { return failed.action == v2alpha1.FailurePolicyFailJob }) {
		return state.Continue
	}
	var texts, refusals []string
	for i := range f.ranked.assignment.Replicas {
		replica := &f.ranked.assignment.Replicas[i]
		pod := f.in.PodNamed[replica.Pod]
		if pod == nil || !state.HasFailed(f.in.Job, pod) || !podstate.OutOfMemory(pod) || f.facts.isCounted(pod) || f.facts.hasGrown(f.sizes, replica, pod) {
			continue
		}
		sized := f.facts.sized(replica)
		text, refusal := f.sizes.Grow(&sized)
		if refusal != "" {
			refusals = append(refusals, refusal)
			continue
		}
		texts = append(texts, text)
		f.out.RecordLastFailure(podstate.Failure(pod, f.in.Timestamp))
		f.out.RecordFailure(f.in.Job.Spec.Tasks[replica.Task].Type, pod)
	}
	if len(texts) > 0 {
		f.sizes.ReportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
		return state.Settled
	}
	if len(refusals) > 0 && len(failures) > 0 {
		// The kills count as failures.
		f.out.Event(corev1.EventTypeWarning, v2alpha1.OverrideOutOfMemory, state.Few(refusals, "; "))
	}
	return state.Continue
}

// whyResourcesRestart describes a change of resources that restarts all replicas, "" if none does.
// A replica that gets more memory restarts the others if its failure does. Replicas that Kueue
// admitted together also queue together for other resources.
func (p *Plan) whyResourcesRestart() string {
	isGrouped := p.facts.isGrouped(p.out.Status())
	for _, pod := range p.out.Current() {
		replica, isKnown := p.facts.replicaOf(pod.Name)
		if !isKnown || podstate.Terminating(pod) || replica.Index >= p.facts.counts.ByTask[replica.Task] {
			continue
		}
		action, _ := actionFor(p.in.Job, &replica, pod)
		sized := p.facts.sized(&replica)
		switch {
		case p.facts.hasGrown(p.sizes, &replica, pod):
			if isGrouped || action == v2alpha1.FailurePolicyRestartJob {
				return fmt.Sprintf("pod %s was out of memory and gets more; restarting all replicas", pod.Name)
			}
		case isGrouped && podstate.Active(pod) && p.sizes.MustChange(&sized):
			return fmt.Sprintf("pod %s gets other resources; restarting all replicas (Kueue admits them together)", pod.Name)
		}
	}
	return ""
}

// shrinkPending records fewer resources for replicas that the scheduler has found no node for.
func (s *staffing) shrinkPending() state.Result {
	s.sizes.ShrinkPending(s.ranked.sizedReplicas())
	return state.Continue
}

// applyResources gives the pods their recorded resources.
func (s *staffing) applyResources() state.Result {
	if !state.IsFinished(s.out.Status()) && !state.IsSuspended(s.in.Job) && !state.IsUnplaced(s.in.Job) {
		s.sizes.Apply(s.ranked.sizedReplicas(), replacement{s})
	}
	return state.Continue
}

// replacement decides which replicas may be replaced for other resources.
type replacement struct{ of *staffing }

// MayRelease implements rightsize.Replacement. A pod of a task with drain hands over its state first.
func (r replacement) MayRelease(pod *corev1.Pod) bool { return r.of.mayRelease(pod) }

// IsForced implements rightsize.Replacement. A pod that runs has enough memory.
func (replacement) IsForced(*rightsize.Replica) bool { return false }

// AreOthersReady implements rightsize.Replacement. Replicas that have succeeded are ready.
func (r replacement) AreOthersReady(replica *rightsize.Replica) bool {
	return !slices.ContainsFunc(r.of.ranked.assignment.Replicas, func(other workload.Replica) bool {
		pod := r.of.in.PodNamed[other.Pod]
		return names.TaskName(&r.of.in.Job.Spec.Tasks[other.Task]) == replica.Task && other.Pod != replica.Pod.Name && !r.of.ranked.completed.Has(other.Rank) &&
			(pod == nil || r.of.out.Deleting[pod] || !podstate.Ready(pod))
	})
}
