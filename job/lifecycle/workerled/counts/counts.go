// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package counts counts how many replicas a worker-led job desires, and restarts all of them where a change requires it. It
// needs no ranks.
package counts

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/endings"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/indexes"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/scaling"
)

// Stage decides about a worker-led job before its replicas have ranks.
type Stage struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	// sizes are the rules of the replicas' resources.
	sizes *rightsize.Rules
	// execution is that of the job's ScalePlan.
	execution scaling.Execution
}

// New returns the rules that need no ranks.
func New(out *state.Plan, job *observed.Facts) *Stage {
	return &Stage{out: out, in: job.In, facts: job, sizes: rightsize.New(out, job.In), execution: scaling.NewExecution(out, job.In)}
}

// Rules are the rules that need no ranks, in order.
func (c *Stage) Rules() []state.Rule {
	if c.facts.IsExcessive() {
		return c.rulesOfExcess()
	}
	return []state.Rule{
		{Name: "a deleted job that is held has no pods", Apply: endings.New(c.out, c.in).Terminate},
		{Name: "objects of an earlier release are adopted", Apply: c.adoptWorkers},
		{Name: "what others changed of pods is put back", Apply: c.out.RestorePods},
		{Name: "the elastic task is named", Apply: c.nameElastic},
		{Name: "the desired counts are recorded", Apply: c.recordCounts},
		{Name: "the newest ScalePlan is taken", Apply: c.execution.Take},
		{Name: "the counts of a ScalePlan are requested", Apply: c.requestCounts},
		{Name: "the memory of the group is recorded", Apply: c.sizes.Inherit},
		{Name: "another placement or size restarts all replicas", Apply: c.reschedule},
		{Name: "a finished job expires", Apply: endings.New(c.out, c.in).Expire},
		{Name: "a finished job is cleaned up", Apply: endings.New(c.out, c.in).CleanUp},
		{Name: "pods that only Kueue's finalizer keeps are released", Apply: c.releaseHeld},
		{Name: "the active deadline passes", Apply: endings.New(c.out, c.in).EndAtDeadline},
		{Name: "stale pods are deleted", Apply: c.removeStale},
	}
}

// rulesOfExcess are the rules that also apply to a job whose desired pods exceed its maximum. They
// do not depend on which replica a pod belongs to.
func (c *Stage) rulesOfExcess() []state.Rule {
	return []state.Rule{
		{Name: "a deleted job that is held has no pods", Apply: endings.New(c.out, c.in).Terminate},
		{Name: "objects of an earlier release are adopted", Apply: c.adoptWorkers},
		{Name: "what others changed of pods is put back", Apply: c.out.RestorePods},
		{Name: "the elastic task is named", Apply: c.nameElastic},
		{Name: "the active deadline passes", Apply: endings.New(c.out, c.in).EndAtDeadline},
		{Name: "a suspended job has no pods", Apply: c.suspendExcessive},
	}
}

// adoptWorkers adopts the pods of a worker-led job that an earlier release created. Those pods do
// not record their attempt.
func (c *Stage) adoptWorkers() state.Result {
	for _, pod := range c.in.Pods {
		if _, isRecorded := pod.Annotations[names.AnnotationAttempt]; !isRecorded {
			c.out.Decision.AdoptPods = append(c.out.Decision.AdoptPods, identity.Adopted(c.in, pod))
		}
	}
	return c.out.SettleAdoption()
}

// nameElastic writes the elastic task and its count into the spec of a job that was stored before
// the webhook did so. Without them the API server cannot serve the scale subresource.
func (c *Stage) nameElastic() state.Result {
	elastic := names.ElasticTask(&c.in.Job.Spec)
	written := ptr.Deref(c.in.Job.Spec.Elastic, v2alpha1.Elastic{})
	if elastic < 0 || written.Replicas != nil && written.Task != "" || state.IsFinished(&c.in.Job.Status) {
		return state.Continue
	}
	written.Task = names.TaskName(&c.in.Job.Spec.Tasks[elastic])
	written.Replicas = ptr.To(sizing.Count(c.in.Job, elastic))
	c.out.Decision.Elastic = &written
	return state.Continue
}

// recordCounts records the desired counts and the fields that they were derived from.
func (c *Stage) recordCounts() state.Result {
	if !state.IsFinished(&c.in.Job.Status) {
		c.reportResizes()
		counts, scaling := c.out.PodCounts(), c.out.Scaling()
		counts.Replicas = c.facts.Counts.Total
		c.out.RecordPodCounts(counts)
		scaling.SpecReplicas, scaling.LastReplicas, scaling.LastAllocation = c.facts.Counts.Spec, c.facts.Counts.Total, c.facts.LastAllocation()
		scaling.Ranks = ranks.Before(c.in.Job, &scaling, indexes.AreOther(c.in.Job, c.facts.Indexes))
		c.out.RecordScaling(&scaling)
	}
	c.out.RecordAttempts(c.learned(c.out.Attempts()))
	return state.Continue
}

// learned returns attempts with restart counts that pods have and the status does not, because the status
// was restored from a backup. An implausibly high count is ignored, because it would count against
// the job permanently.
func (c *Stage) learned(attempts state.Attempts) state.Attempts {
	recorded := &c.in.Job.Status
	attempts.ReplicaRestarts = maps.Clone(attempts.ReplicaRestarts)
	for _, pod := range c.in.Pods {
		attempts.Restarts = max(attempts.Restarts, podstate.PlausibleCount(podstate.Attempt(pod), recorded.Restarts))
		attempts.Reschedules = max(attempts.Reschedules, podstate.PlausibleCount(podstate.Reschedule(pod), recorded.Reschedules))
	}
	for _, pod := range c.in.Pods {
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

// requestCounts writes the counts of a plan into the spec, once. Another writer may change them from then
// on.
func (c *Stage) requestCounts() state.Result {
	if !c.execution.IsExecuting() || c.execution.Record().Resized {
		return state.Continue
	}
	if counts := c.facts.CountsOf(c.execution.Record()); len(counts) > 0 {
		c.out.Decision.Counts = &state.Counts{Manager: names.PlanManager(c.execution.Record().Name), Tasks: counts}
	}
	return state.Continue
}

// releaseHeld removes Kueue's finalizer from pods that are otherwise deleted. The pods that replace
// them have the same names, and Kueue waits for them. An eviction is recorded first.
func (c *Stage) releaseHeld() state.Result {
	for _, pod := range c.in.Pods {
		_, evicted := queueing.Eviction(pod)
		isRecorded := podstate.PlausibleCount(podstate.Attempt(pod), c.in.Job.Status.Restarts) < c.in.Job.Status.Restarts ||
			podstate.PlausibleCount(podstate.Reschedule(pod), c.in.Job.Status.Reschedules) < c.in.Job.Status.Reschedules
		if queueing.HasOnlyFinalizer(pod) && (!evicted || isRecorded || !c.out.IsStale(pod) && !c.isOfRecordedGrowth(pod)) {
			c.out.Decision.ReleasePods = append(c.out.Decision.ReleasePods, queueing.Release(pod))
		}
	}
	return state.Continue
}

// isOfRecordedGrowth reports whether the group of a pod is among those that were added.
func (c *Stage) isOfRecordedGrowth(pod *corev1.Pod) bool {
	_, number, grouped := groups.Of(c.in.Job, pod)
	return grouped && c.facts.Grown.Record != nil && slices.ContainsFunc(c.facts.Grown.Record.Groups, func(group v2alpha1.GrowthGroup) bool {
		return group.Number == number
	})
}

// removeStale deletes the pods of earlier attempts and placements, and waits until they are gone.
// The next pods have the same names.
func (c *Stage) removeStale() state.Result {
	stale := false
	for _, pod := range c.in.Pods {
		if !c.out.IsStale(pod) {
			continue
		}
		stale = true
		isRestarted := podstate.PlausibleCount(podstate.Attempt(pod), c.out.Status().Restarts) < c.out.Status().Restarts
		if state.IsSuspended(c.in.Job) || !isRestarted || !policy.IsKept(c.out, c.in, pod, c.out.Status().Restarts) {
			c.out.DeletePod(pod)
		}
	}
	switch {
	case !stale:
		return state.Continue
	case state.IsSuspended(c.in.Job):
		// The ends of this attempt's pods are recorded before the pods are deleted, too.
		return endings.New(c.out, c.in).Stop()
	}
	if phase := c.out.Status().Phase; phase != v2alpha1.JobRescheduling {
		c.out.SetPhase(v2alpha1.JobRestarting, c.facts.RestartMessage(c.out.Status().Restarts))
	}
	return state.Settled
}

// suspendExcessive suspends a job whose ranks are unknown.
func (c *Stage) suspendExcessive() state.Result {
	return policy.Suspend(c.out, c.in, false)
}
