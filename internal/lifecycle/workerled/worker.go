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

// Rules are the rules of a worker-led job, in order.
func (p *Plan) Rules() []state.Rule {
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
		{Name: "every replica gets a rank", Apply: p.assignRanks},
		{Name: "completed ranks are recorded", Apply: p.recordCompleted},
		{Name: "replicas that are added to a queued job get a group", Apply: p.recordGrowth},
		{Name: "all deciding ranks have succeeded", Apply: p.succeed},
		{Name: "out-of-memory replicas get more memory", Apply: p.growMemory},
		{Name: "failures are counted", Apply: p.countFailures},
		{Name: "a suspended job has no pods", Apply: p.suspendWorkers},
		{Name: "repeated disruptions back off", Apply: p.backOffDisrupted},
		{Name: "excess, failed and disrupted pods are deleted", Apply: p.removeExcess},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: p.migrate},
		{Name: "unschedulable replicas request less", Apply: p.shrinkPending},
		{Name: "pods get their recorded resources", Apply: p.applyResources},
		{Name: "the membership is published", Apply: p.publishMembership},
		{Name: "peer lists stay while pods need them", Apply: p.keepNodes},
		{Name: "the PodGroup is created before its pods", Apply: p.ensureGang},
		{Name: "every replica gets a pod", Apply: p.ensureWorkers},
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
		{Name: "a suspended job has no pods", Apply: p.suspendWorkers},
	}
}

// suspendWorkers deletes the pods of a suspended job. Succeeded pods stay until the status records
// their ranks. Otherwise those ranks would run again once the job is resumed.
func (p *Plan) suspendWorkers() state.Result {
	isRecorded := p.out.Status().CompletedRanks == p.in.Job.Status.CompletedRanks && !p.facts.isExcessive()
	if state.IsSuspended(p.in.Job) && !isRecorded {
		p.out.Unrecorded = map[string]bool{}
		for _, pod := range p.in.Pods {
			p.out.Unrecorded[pod.Name] = pod.Status.Phase == corev1.PodSucceeded
		}
	}
	return p.out.Suspend()
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
	status := p.out.Status()
	if !state.IsFinished(&p.in.Job.Status) {
		p.reportResizes()
		status.Replicas = p.facts.counts.Total
		scaling := &v2alpha1.ScalingStatus{
			SpecReplicas: p.facts.counts.Spec, LastReplicas: p.facts.counts.Total, LastAllocation: p.facts.lastAllocation(),
		}
		if status.Scaling != nil {
			scaling.Resources, scaling.Plan, scaling.Indexes = status.Scaling.Resources, status.Scaling.Plan, status.Scaling.Indexes
			scaling.Membership, scaling.Growth = status.Scaling.Membership, status.Scaling.Growth
		}
		scaling.Ranks = ranks.Before(p.in.Job, scaling, p.facts.isReindexed())
		status.Scaling = scaling
	}
	p.learnRestarts()
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

// learnRestarts adopts restart counts that pods have and the status does not, because the status
// was restored from a backup. An implausibly high count is ignored, because it would count against
// the job permanently.
func (p *Plan) learnRestarts() {
	status, recorded := p.out.Status(), &p.in.Job.Status
	for _, pod := range p.in.Pods {
		status.Restarts = max(status.Restarts, podstate.PlausibleCount(podstate.Attempt(pod), recorded.Restarts))
		status.Reschedules = max(status.Reschedules, podstate.PlausibleCount(podstate.Reschedule(pod), recorded.Reschedules))
	}
	for _, pod := range p.in.Pods {
		restarts := podstate.PlausibleCount(podstate.ReplicaRestarts(pod), recorded.ReplicaRestarts[pod.Name])
		if p.out.IsStale(pod) || restarts <= status.ReplicaRestarts[pod.Name] {
			continue
		}
		if status.ReplicaRestarts == nil {
			status.ReplicaRestarts = map[string]int32{}
		}
		status.ReplicaRestarts[pod.Name] = restarts
	}
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
		if state.IsSuspended(p.in.Job) || !isRestarted || !p.isKept(pod, p.out.Status().Restarts) {
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
		p.out.SetPhase(v2alpha1.JobRestarting, p.restartMessage())
	}
	return state.Settled
}

// assignRanks assigns a rank to each desired replica.
func (p *Plan) assignRanks() state.Result {
	p.assignment = ranks.Assign(p.in.Job, p.facts.indexes, p.out.Status(), p.in.PodNamed, p.facts.peersOf)
	p.assignment.ReplicaRestarts = p.out.Status().ReplicaRestarts
	p.recordRanks()
	p.assignment.Subdomain, p.assignment.Selector = p.subdomain(), p.selector()
	return state.Continue
}

// recordCompleted writes which of the desired ranks have succeeded: those recorded already, and
// those whose pods have succeeded now.
func (p *Plan) recordCompleted() state.Result {
	completed := map[int32]bool{}
	p.out.Unrecorded = map[string]bool{}
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.in.PodNamed[replica.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := p.isCompleted(replica)
		if shown || recorded {
			completed[replica.Rank] = true
		}
		if shown && !recorded {
			p.out.Unrecorded[replica.Pod] = true
		}
	}
	p.out.Status().CompletedRanks = ranks.Format(completed)
	return state.Continue
}

// isCompleted reports whether a replica's rank is recorded as succeeded. The records of
// an earlier attempt do not count.
func (p *Plan) isCompleted(replica *workload.Replica) bool {
	return p.in.Job.Status.Restarts == p.assignment.Attempt && p.in.Job.Status.Reschedules == p.assignment.Reschedule && p.facts.recorded.Has(replica.Rank)
}

// succeed finishes the job once every replica of the deciding tasks has succeeded. All tasks decide
// if the job names none, or if those that it names have no replicas, because the job would
// otherwise never finish.
func (p *Plan) succeed() state.Result {
	replicas := slices.DeleteFunc(slices.Clone(p.assignment.Replicas), func(replica workload.Replica) bool { return !decides(p.in.Job, replica.Task) })
	if len(replicas) == 0 {
		replicas = p.assignment.Replicas
	}
	deciding := len(replicas)
	if slices.ContainsFunc(replicas, func(replica workload.Replica) bool { return !p.completed().Has(replica.Rank) }) {
		return state.Continue
	}
	switch deciding {
	case 0:
		return state.Continue
	case len(p.assignment.Replicas):
		p.out.Finish(v2alpha1.JobSucceeded, all(deciding, "replica")+english.PluralWord(deciding, " has", " have")+" succeeded")
	default:
		p.out.Finish(v2alpha1.JobSucceeded, fmt.Sprintf("%s of the target tasks %s succeeded: %s",
			all(deciding, "replica"), english.PluralWord(deciding, "has", "have"), state.Few(p.in.Job.Spec.SuccessPolicy.TargetTasks, ", ")))
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
func (p *Plan) removeExcess() state.Result {
	replicas := make(map[string]*workload.Replica, len(p.assignment.Replicas))
	for i := range p.assignment.Replicas {
		replicas[p.assignment.Replicas[i].Pod] = &p.assignment.Replicas[i]
	}
	for _, pod := range p.in.Pods {
		replica := replicas[pod.Name]
		switch {
		case replica == nil:
			if p.mayRelease(pod) {
				p.out.DeletePod(pod)
			}
		case pod.Status.Phase == corev1.PodSucceeded:
			// This includes one that was given up before its success was observed.
			if podstate.InjectedRuns(pod) && p.in.CleanPodPolicy() != v2alpha1.CleanPodPolicyNone {
				p.out.DeletePod(pod)
			}
		case hasForeignRank(replica, pod), p.isCompleted(replica):
			p.out.DeletePod(pod)
		case p.facts.isCounted(pod):
			if !p.isKept(pod, p.out.Status().ReplicaRestarts[pod.Name]) {
				p.out.DeletePod(pod)
			}
		case queueing.IsAbandoned(pod), p.isOfFormerGroup(replica, pod), p.mayReplaceWorker(replica, pod), p.hasLostNodes(pod):
			p.out.DeletePod(pod)
		}
	}
	return state.Continue
}

func (p *Plan) ensureWorkers() state.Result {
	if isUnplaced(p.in.Job) || !p.mayQueue() {
		return state.Continue
	}
	p.ensureWorkerService()
	if p.isAnyMoved() || p.isGrowthUnrecorded() {
		// The write of the record triggers the next reconcile.
		return state.Continue
	}
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		if p.in.PodNamed[replica.Pod] != nil || p.completed().Has(replica.Rank) || p.out.IsPodTaken(replica.Pod) {
			continue
		}
		if p.out.MayCreate(names.TaskName(&p.in.Job.Spec.Tasks[replica.Task])) {
			p.createWorker(replica)
		}
	}
	if len(p.out.Decision.CreatePods) > 0 && !p.provideNodes() {
		p.out.Decision.CreatePods = nil
	}
	return state.Continue
}

// createWorker creates the pod of a replica in the job's gang and queue, or records why it cannot
// be built.
func (p *Plan) createWorker(replica *workload.Replica) {
	pod, err := p.in.Builder.Worker(&p.assignment, replica)
	if err != nil {
		p.out.Invalidate(err.Error())
		return
	}
	p.gang.mark(pod)
	p.podMeta(replica).Apply(pod)
	p.out.CreatePod(pod)
}
