// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/gangs"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// isExcessive reports whether the job desires more pods than its maximum, or pods of a resized job
// cannot be built. Nothing is created for such a job and its pods keep running, because a wrong
// number must not end a training run.
func (f *facts) isExcessive() bool {
	return len(f.tooMany) > 0
}

// counting are the rules that need no ranks, in order.
func (p *Plan) counting() []state.Rule {
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
func (p *Plan) rulesOfExcess() []state.Rule {
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
func (p *Plan) suspendExcessive() state.Result {
	return suspend(p.out, p.in, false)
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

// recordCounts records the desired counts and the fields that they were derived from.
func (p *Plan) recordCounts() state.Result {
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

// learned returns attempts with restart counts that pods have and the status does not, because the status
// was restored from a backup. An implausibly high count is ignored, because it would count against
// the job permanently.
func (p *Plan) learned(attempts state.Attempts) state.Attempts {
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
func (p *Plan) removeStale() state.Result {
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

// isCompleted reports whether a replica's rank is recorded as succeeded. The records of
// an earlier attempt do not count.
func (a *ranked) isCompleted(replica *workload.Replica) bool {
	return a.in.Job.Status.Restarts == a.assignment.Attempt && a.in.Job.Status.Reschedules == a.assignment.Reschedule && a.facts.recorded.Has(replica.Rank)
}

// succeed finishes the job once every replica of the deciding tasks has succeeded. All tasks decide
// if the job names none, or if those that it names have no replicas, because the job would
// otherwise never finish.
func (f *failing) succeed() state.Result {
	replicas := slices.DeleteFunc(slices.Clone(f.ranked.assignment.Replicas), func(replica workload.Replica) bool { return !decides(f.in.Job, replica.Task) })
	if len(replicas) == 0 {
		replicas = f.ranked.assignment.Replicas
	}
	deciding := len(replicas)
	if slices.ContainsFunc(replicas, func(replica workload.Replica) bool { return !f.ranked.completed.Has(replica.Rank) }) {
		return state.Continue
	}
	switch deciding {
	case 0:
		return state.Continue
	case len(f.ranked.assignment.Replicas):
		f.out.Finish(v2alpha1.JobSucceeded, state.All(deciding, "replica")+english.PluralWord(deciding, " has", " have")+" succeeded")
	default:
		f.out.Finish(v2alpha1.JobSucceeded, fmt.Sprintf("%s of the target tasks %s succeeded: %s",
			state.All(deciding, "replica"), english.PluralWord(deciding, "has", "have"), state.Few(f.in.Job.Spec.SuccessPolicy.TargetTasks, ", ")))
	}
	return state.Settled
}

// decides reports whether the job's success requires that of the task.
func decides(job *v2alpha1.DIJob, task int) bool {
	policy := job.Spec.SuccessPolicy
	return policy == nil || len(policy.TargetTasks) == 0 || slices.Contains(policy.TargetTasks, names.TaskName(&job.Spec.Tasks[task]))
}

// removeExcess deletes pods without a replica after a shrink, and pods whose rank another replica
// has or has completed. It also deletes succeeded pods in which an injected container runs, and
// failed pods that are recreated under the same name.
func (s *staffing) removeExcess() state.Result {
	replicas := make(map[string]*workload.Replica, len(s.ranked.assignment.Replicas))
	for i := range s.ranked.assignment.Replicas {
		replicas[s.ranked.assignment.Replicas[i].Pod] = &s.ranked.assignment.Replicas[i]
	}
	for _, pod := range s.in.Pods {
		replica := replicas[pod.Name]
		switch {
		case replica == nil:
			if s.mayRelease(pod) {
				s.out.DeletePod(pod)
			}
		case pod.Status.Phase == corev1.PodSucceeded:
			// This includes one that was given up before its success was observed.
			if podstate.InjectedRuns(pod) && s.in.CleanPodPolicy() != v2alpha1.CleanPodPolicyNone {
				s.out.DeletePod(pod)
			}
		case hasForeignRank(replica, pod), s.ranked.isCompleted(replica):
			s.out.DeletePod(pod)
		case s.facts.isCounted(pod):
			if !isKept(s.out, s.in.Now, pod, s.out.Status().ReplicaRestarts[pod.Name]) {
				s.out.DeletePod(pod)
			}
		case queueing.IsAbandoned(pod), s.isOfFormerGroup(replica, pod), s.mayReplaceWorker(replica, pod), s.hasLostNodes(pod):
			s.out.DeletePod(pod)
		}
	}
	return state.Continue
}

// ensureWorkers creates the pods of replicas without one, as members of a gang if there is one.
func (s *staffing) ensureWorkers(gang *gangs.Plan) {
	if state.IsUnplaced(s.in.Job) || !s.mayQueue() {
		return
	}
	s.ensureWorkerService()
	if s.isAnyMoved() || s.isGrowthUnrecorded() {
		// The write of the record triggers the next reconcile.
		return
	}
	if missing := s.missing(); len(missing) > 0 {
		s.createWorkers(missing, gang)
	}
}

// missing returns the replicas whose pods may be created now.
func (s *staffing) missing() []*workload.Replica {
	var missing []*workload.Replica
	for i := range s.ranked.assignment.Replicas {
		replica := &s.ranked.assignment.Replicas[i]
		if s.in.PodNamed[replica.Pod] != nil || s.ranked.completed.Has(replica.Rank) || s.out.IsPodTaken(replica.Pod) {
			continue
		}
		if s.out.MayCreate(names.TaskName(&s.in.Job.Spec.Tasks[replica.Task])) {
			missing = append(missing, replica)
		}
	}
	return missing
}

// createWorkers creates the pods of replicas in the job's gang and queue, or records why one cannot be built.
func (s *staffing) createWorkers(replicas []*workload.Replica, gang *gangs.Plan) {
	start := s.findPodMeta()
	for _, replica := range replicas {
		pod, err := s.in.Builder.Worker(&s.ranked.assignment, replica)
		if err != nil {
			s.out.Invalidate(err.Error())
			continue
		}
		gang.Mark(pod)
		s.podMeta(replica, start).Apply(pod)
		s.out.CreatePod(pod)
	}
	if len(s.out.Decision.CreatePods) > 0 && !s.provideNodes() {
		s.out.Decision.CreatePods = nil
	}
}

// suspendWorkers suspends the job once its completed ranks are recorded.
func (f *failing) suspendWorkers() state.Result {
	return suspend(f.out, f.in, f.out.Status().CompletedRanks == f.in.Job.Status.CompletedRanks)
}
