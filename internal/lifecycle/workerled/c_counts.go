// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/scaling"
)

// adoptWorkers adopts the pods of a worker-led job that an earlier release created. Those pods do
// not record their attempt.
func (p *counting) adoptWorkers() state.Result {
	for _, pod := range p.in.Pods {
		if _, isRecorded := pod.Annotations[names.AnnotationAttempt]; !isRecorded {
			p.out.Decision.AdoptPods = append(p.out.Decision.AdoptPods, p.facts.adoptedWorker(pod))
		}
	}
	if !p.out.Decision.IsAdoption() {
		return state.Continue
	}
	p.out.RequeueAfter(state.AdoptionDelay)
	return state.Settled
}

// isOfRecordedGrowth reports whether the group of a pod is among those that were added.
func (p *counting) isOfRecordedGrowth(pod *corev1.Pod) bool {
	_, number, grouped := p.facts.groupOf(pod)
	return grouped && p.facts.grown.record != nil && slices.ContainsFunc(p.facts.grown.record.Groups, func(group v2alpha1.GrowthGroup) bool {
		return group.Number == number
	})
}

// counting decides about a worker-led job before its replicas have ranks.
type counting struct {
	out   *state.Plan
	in    *state.Input
	facts *facts
	// sizes are the rules of the replicas' resources.
	sizes *rightsize.Rules
	// execution is that of the job's ScalePlan.
	execution scaling.Execution
}

// newCounting returns the rules that need no ranks.
func newCounting(out *state.Plan, job *facts) *counting {
	return &counting{out: out, in: job.in, facts: job, sizes: rightsize.New(out, job.in), execution: scaling.NewExecution(out, job.in)}
}

// releaseHeld removes Kueue's finalizer from pods that are otherwise deleted. The pods that replace
// them have the same names, and Kueue waits for them. An eviction is recorded first.
func (p *counting) releaseHeld() state.Result {
	for _, pod := range p.in.Pods {
		_, evicted := queueing.Eviction(pod)
		isRecorded := podstate.PlausibleCount(podstate.Attempt(pod), p.in.Job.Status.Restarts) < p.in.Job.Status.Restarts ||
			podstate.PlausibleCount(podstate.Reschedule(pod), p.in.Job.Status.Reschedules) < p.in.Job.Status.Reschedules
		if queueing.HasOnlyFinalizer(pod) && (!evicted || isRecorded || !p.out.IsStale(pod) && !p.isOfRecordedGrowth(pod)) {
			p.out.Decision.ReleasePods = append(p.out.Decision.ReleasePods, queueing.Release(pod))
		}
	}
	return state.Continue
}

// nameElastic writes the elastic task and its count into the spec of a job that was stored before
// the webhook did so. Without them the API server cannot serve the scale subresource.
func (p *counting) nameElastic() state.Result {
	elastic := names.ElasticTask(&p.in.Job.Spec)
	written := ptr.Deref(p.in.Job.Spec.Elastic, v2alpha1.Elastic{})
	if elastic < 0 || written.Replicas != nil && written.Task != "" || state.IsFinished(&p.in.Job.Status) {
		return state.Continue
	}
	written.Task = names.TaskName(&p.in.Job.Spec.Tasks[elastic])
	written.Replicas = ptr.To(sizing.Count(p.in.Job, elastic))
	p.out.Decision.Elastic = &written
	return state.Continue
}

// requestCounts writes the counts of a plan into the spec, once. Another writer may change them from then
// on.
func (p *counting) requestCounts() state.Result {
	if !p.execution.IsExecuting() || p.execution.Record().Resized {
		return state.Continue
	}
	if counts := p.facts.countsOf(p.execution.Record()); len(counts) > 0 {
		p.out.Decision.Counts = &state.Counts{Manager: names.PlanManager(p.execution.Record().Name), Tasks: counts}
	}
	return state.Continue
}

// rules are the rules that need no ranks, in order.
func (p *counting) rules() []state.Rule {
	if p.facts.isExcessive() {
		return p.rulesOfExcess()
	}
	return []state.Rule{
		{Name: "a deleted job that is held has no pods", Apply: p.out.Terminate},
		{Name: "objects of an earlier release are adopted", Apply: p.adoptWorkers},
		{Name: "what others changed of pods is put back", Apply: p.out.RestorePods},
		{Name: "the elastic task is named", Apply: p.nameElastic},
		{Name: "the desired counts are recorded", Apply: p.recordCounts},
		{Name: "the newest ScalePlan is taken", Apply: p.execution.Take},
		{Name: "the counts of a ScalePlan are requested", Apply: p.requestCounts},
		{Name: "the memory of the group is recorded", Apply: p.sizes.Inherit},
		{Name: "another placement or size restarts all replicas", Apply: p.reschedule},
		{Name: "a finished job expires", Apply: p.out.Expire},
		{Name: "a finished job is cleaned up", Apply: p.out.CleanUp},
		{Name: "pods that only Kueue's finalizer keeps are released", Apply: p.releaseHeld},
		{Name: "the active deadline passes", Apply: p.out.EndAtDeadline},
		{Name: "stale pods are deleted", Apply: p.removeStale},
	}
}

// rulesOfExcess are the rules that also apply to a job whose desired pods exceed its maximum. They
// do not depend on which replica a pod belongs to.
func (p *counting) rulesOfExcess() []state.Rule {
	return []state.Rule{
		{Name: "a deleted job that is held has no pods", Apply: p.out.Terminate},
		{Name: "objects of an earlier release are adopted", Apply: p.adoptWorkers},
		{Name: "what others changed of pods is put back", Apply: p.out.RestorePods},
		{Name: "the elastic task is named", Apply: p.nameElastic},
		{Name: "the active deadline passes", Apply: p.out.EndAtDeadline},
		{Name: "a suspended job has no pods", Apply: p.suspendExcessive},
	}
}

// suspend deletes the pods of a suspended job. Succeeded pods stay until the status records their
// ranks. Otherwise those ranks would run again once the job is resumed.
func suspend(out *state.Plan, in *state.Input, isRecorded bool) state.Result {
	if state.IsSuspended(in.Job) && !isRecorded {
		out.Unrecorded = map[string]bool{}
		for _, pod := range in.Pods {
			out.Unrecorded[pod.Name] = pod.Status.Phase == corev1.PodSucceeded
		}
	}
	return out.Suspend()
}

// suspendExcessive suspends a job whose ranks are unknown.
func (p *counting) suspendExcessive() state.Result {
	return suspend(p.out, p.in, false)
}

// recordCounts records the desired counts and the fields that they were derived from.
func (p *counting) recordCounts() state.Result {
	if !state.IsFinished(&p.in.Job.Status) {
		p.reportResizes()
		counts, scaling := p.out.PodCounts(), p.out.Scaling()
		counts.Replicas = p.facts.counts.Total
		p.out.RecordPodCounts(counts)
		scaling.SpecReplicas, scaling.LastReplicas, scaling.LastAllocation = p.facts.counts.Spec, p.facts.counts.Total, p.facts.lastAllocation()
		scaling.Ranks = ranks.Before(p.in.Job, &scaling, p.facts.isReindexed())
		p.out.RecordScaling(&scaling)
	}
	p.out.RecordAttempts(p.learned(p.out.Attempts()))
	return state.Continue
}

// LacksRemoved reports whether a job was shrunk, and the cache lacks some of its former pods. The next status forgets
// the former counts.
func LacksRemoved(observed state.Observed) bool {
	scaling := observed.Job.Status.Scaling
	if scaling == nil || state.IsFinished(&observed.Job.Status) || len(observed.Pods) >= int(scaling.LastReplicas) {
		return false
	}
	wanted := sizing.Wanted(observed.Job)
	if sizing.Excess(&observed, &wanted) != nil {
		return false
	}
	return wanted.Total < scaling.LastReplicas ||
		slices.ContainsFunc(sizing.FindResizes(observed, &wanted), func(resize sizing.Resize) bool { return resize.To < resize.From })
}

// learned returns attempts with restart counts that pods have and the status does not, because the status
// was restored from a backup. An implausibly high count is ignored, because it would count against
// the job permanently.
func (p *counting) learned(attempts state.Attempts) state.Attempts {
	recorded := &p.in.Job.Status
	attempts.ReplicaRestarts = maps.Clone(attempts.ReplicaRestarts)
	for _, pod := range p.in.Pods {
		attempts.Restarts = max(attempts.Restarts, podstate.PlausibleCount(podstate.Attempt(pod), recorded.Restarts))
		attempts.Reschedules = max(attempts.Reschedules, podstate.PlausibleCount(podstate.Reschedule(pod), recorded.Reschedules))
	}
	for _, pod := range p.in.Pods {
		restarts := podstate.PlausibleCount(podstate.ReplicaRestarts(pod), recorded.ReplicaRestarts[pod.Name])
		if attempts.IsStale(pod) || restarts <= attempts.ReplicaRestarts[pod.Name] {
			continue
		}
		if attempts.ReplicaRestarts == nil {
			attempts.ReplicaRestarts = map[string]int32{}
		}
		attempts.ReplicaRestarts[pod.Name] = restarts
	}
	return attempts
}

// removeStale deletes the pods of earlier attempts and placements, and waits until they are gone.
// The next pods have the same names.
func (p *counting) removeStale() state.Result {
	stale := false
	for _, pod := range p.in.Pods {
		if !p.out.IsStale(pod) {
			continue
		}
		stale = true
		isRestarted := podstate.PlausibleCount(podstate.Attempt(pod), p.out.Status().Restarts) < p.out.Status().Restarts
		if state.IsSuspended(p.in.Job) || !isRestarted || !isKept(p.out, p.in.Now, pod, p.out.Status().Restarts) {
			p.out.DeletePod(pod)
		}
	}
	switch {
	case !stale:
		return state.Continue
	case state.IsSuspended(p.in.Job):
		// The ends of this attempt's pods are recorded before the pods are deleted, too.
		return p.out.Stop()
	}
	if phase := p.out.Status().Phase; phase != v2alpha1.JobRescheduling {
		p.out.SetPhase(v2alpha1.JobRestarting, p.facts.restartMessage(p.out.Status().Restarts))
	}
	return state.Settled
}
