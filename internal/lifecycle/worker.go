// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// workerRules are the rules of a worker-led job, in order.
func workerRules() []rule {
	return []rule{
		{"objects of an earlier release are adopted", adoptWorkers},
		{"the elastic task is named", nameElastic},
		{"the desired counts are recorded", recordCounts},
		{"another placement or size restarts all replicas", reschedule},
		{"a finished job expires", expire},
		{"a finished job is cleaned up", cleanUp},
		{"pods that only Kueue's finalizer keeps are released", releaseHeld},
		{"the active deadline passes", endAtDeadline},
		{"stale pods are deleted", removeStale},
		{"every replica gets a rank", assignRanks},
		{"completed ranks are recorded", recordCompleted},
		{"all deciding ranks have succeeded", succeed},
		{"failures are counted", countFailures},
		{"a suspended job has no pods", suspend},
		{"repeated disruptions back off", backOffDisrupted},
		{"excess, failed and disrupted pods are deleted", removeExcess},
		{"peer lists stay while pods need them", keepNodes},
		{"the PodGroup is created before its pods", ensureGang},
		{"every replica gets a pod", ensureWorkers},
	}
}

// rulesOfExcess are those of workerRules that also apply to a job with more desired pods
// than it may have: they do not depend on what each pod is for.
func rulesOfExcess() []rule {
	return []rule{
		{"objects of an earlier release are adopted", adoptWorkers},
		{"the elastic task is named", nameElastic},
		{"the active deadline passes", endAtDeadline},
		{"a suspended job has no pods", suspend},
	}
}

// unbuildable describes why no pods can be built for a job that a resize restarts, nil
// if they can: the job keeps its pods then.
func (in *input) unbuildable() []string {
	before := in.Job.Status.Scaling
	if len(in.Pods) == 0 || before == nil || before.LastReplicas == in.counts.total && maps.Equal(before.SpecReplicas, in.counts.spec) {
		return nil
	}
	if !in.Job.Spec.Preemptible && (len(in.resizes) == 0 || in.whyRestarted(&in.Job.Status) == "") {
		return nil
	}
	assignment := newAssignment(in.Job, in.counts.byTask, &v2alpha1.DIJobStatus{Scaling: &v2alpha1.ScalingStatus{}}, nil, in.peersOf)
	builder := workload.NewBuilder(in.Job, in.Settings)
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

// recordCounts records the desired counts, and what they were derived from.
func recordCounts(p *plan) outcome {
	status := p.status()
	if !IsFinished(&p.Job.Status) {
		p.reportResizes()
		status.Replicas = p.counts.total
		scaling := &v2alpha1.ScalingStatus{
			SpecReplicas: p.counts.spec, LastReplicas: p.counts.total, LastAllocation: p.lastAllocation(),
		}
		scaling.Ranks = ranksBefore(p.Job, scaling)
		status.Scaling = scaling
	}
	p.learnRestarts()
	return goOn
}

// lastAllocation returns the digest to record for the allocation that is acted on. A
// suspended job keeps the recorded one: its pods may still terminate when it is resumed,
// and then show whether they were placed elsewhere.
func (in *input) lastAllocation() string {
	if !in.Job.Spec.Preemptible {
		return ""
	}
	digest, before := digestOf(in.Job.Status.Allocation), in.Job.Status.Scaling
	if IsSuspended(in.Job) && before != nil && before.LastAllocation != digest {
		return ""
	}
	return digest
}

// learnRestarts adopts restart counts that pods know and the status does not, because it
// was restored from a backup. A count that is too far ahead for that is ignored: it
// would count against the job for good.
func (p *plan) learnRestarts() {
	status, recorded := p.status(), &p.Job.Status
	for _, pod := range p.Pods {
		status.Restarts = max(status.Restarts, believed(attemptOf(pod), recorded.Restarts))
		status.Reschedules = max(status.Reschedules, believed(rescheduleOf(pod), recorded.Reschedules))
	}
	for _, pod := range p.Pods {
		restarts := believed(replicaRestartOf(pod), recorded.ReplicaRestarts[pod.Name])
		if p.isStale(pod) || restarts <= status.ReplicaRestarts[pod.Name] {
			continue
		}
		if status.ReplicaRestarts == nil {
			status.ReplicaRestarts = map[string]int32{}
		}
		status.ReplicaRestarts[pod.Name] = restarts
	}
}

// removeStale deletes the pods of earlier attempts and placements, and waits until they
// are gone: the next ones have their names.
func removeStale(p *plan) outcome {
	stale := false
	for _, pod := range p.Pods {
		if !p.isStale(pod) {
			continue
		}
		stale = true
		isRestarted := believed(attemptOf(pod), p.status().Restarts) < p.status().Restarts
		if IsSuspended(p.Job) || !isRestarted || !p.isKept(pod, p.status().Restarts) {
			p.deletePod(pod)
		}
	}
	switch {
	case !stale:
		return goOn
	case IsSuspended(p.Job):
		// How those of this attempt ended is recorded before they go, too.
		return p.stop()
	}
	if phase := p.status().Phase; phase != v2alpha1.JobRescheduling {
		p.setPhase(v2alpha1.JobRestarting, p.restartMessage())
	}
	return settled
}

// assignRanks assigns a rank to each desired replica.
func assignRanks(p *plan) outcome {
	p.assignment = newAssignment(p.Job, p.counts.byTask, p.status(), p.pods, p.peersOf)
	p.assignment.ReplicaRestarts = p.status().ReplicaRestarts
	p.recordRanks()
	p.assignment.Subdomain, p.assignment.Selector = p.subdomain(), p.selector()
	return goOn
}

func recordCompleted(p *plan) outcome {
	p.recordCompleted()
	return goOn
}

// recordCompleted writes which of the wanted ranks have succeeded: those that
// are recorded already, and those whose pods show it now.
func (p *plan) recordCompleted() {
	completed := map[int32]bool{}
	p.unrecorded = map[string]bool{}
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.pods[replica.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := p.isCompleted(replica)
		if shown || recorded {
			completed[replica.Rank] = true
		}
		if shown && !recorded {
			p.unrecorded[replica.Pod] = true
		}
	}
	p.status().CompletedRanks = formatRanks(completed)
}

// isCompleted reports whether a replica's rank is recorded as succeeded. The records of
// an earlier attempt do not count.
func (p *plan) isCompleted(replica *workload.Replica) bool {
	return p.Job.Status.Restarts == p.assignment.Attempt && p.Job.Status.Reschedules == p.assignment.Reschedule && p.recorded.has(replica.Rank)
}

// succeed finishes the job once every replica of the deciding tasks has succeeded. If
// the job names none, or those that it names have no replicas, all tasks decide: nothing
// else would ever finish it.
func succeed(p *plan) outcome {
	replicas := slices.DeleteFunc(slices.Clone(p.assignment.Replicas), func(replica workload.Replica) bool { return !decides(p.Job, replica.Task) })
	if len(replicas) == 0 {
		replicas = p.assignment.Replicas
	}
	deciding := len(replicas)
	if slices.ContainsFunc(replicas, func(replica workload.Replica) bool { return !p.completed().has(replica.Rank) }) {
		return goOn
	}
	switch deciding {
	case 0:
		return goOn
	case len(p.assignment.Replicas):
		p.finish(v2alpha1.JobSucceeded, fmt.Sprintf("all %d replicas have succeeded", deciding))
	default:
		p.finish(v2alpha1.JobSucceeded, fmt.Sprintf("all %d replicas of the target tasks have succeeded: %s",
			deciding, few(p.Job.Spec.SuccessPolicy.TargetTasks, ", ")))
	}
	return settled
}

// decides reports whether the success of a task decides the job's.
func decides(job *v2alpha1.DIJob, task int) bool {
	policy := job.Spec.SuccessPolicy
	return policy == nil || len(policy.TargetTasks) == 0 || slices.Contains(policy.TargetTasks, names.TaskName(&job.Spec.Tasks[task]))
}

// removeExcess deletes pods without a replica after a shrink, pods whose rank another
// replica has or has completed, succeeded pods in which an injected container runs, and
// failed pods that are recreated under the same name.
func removeExcess(p *plan) outcome {
	replicas := make(map[string]*workload.Replica, len(p.assignment.Replicas))
	for i := range p.assignment.Replicas {
		replicas[p.assignment.Replicas[i].Pod] = &p.assignment.Replicas[i]
	}
	for _, pod := range p.Pods {
		replica := replicas[pod.Name]
		switch {
		case replica == nil:
			p.deletePod(pod)
		case pod.Status.Phase == corev1.PodSucceeded:
			// Also one that was given up before it was seen to succeed.
			if podstate.InjectedRuns(pod) && p.cleanPodPolicy() != v2alpha1.CleanPodPolicyNone {
				p.deletePod(pod)
			}
		case hasForeignRank(replica, pod), p.isCompleted(replica):
			p.deletePod(pod)
		case p.isCounted(pod):
			if !p.isKept(pod, p.status().ReplicaRestarts[pod.Name]) {
				p.deletePod(pod)
			}
		case queueing.IsAbandoned(pod), p.mayReplaceWorker(replica, pod), p.hasLostNodes(pod):
			p.deletePod(pod)
		}
	}
	return goOn
}

func ensureWorkers(p *plan) outcome {
	if isUnplaced(p.Job) || !p.mayQueue() {
		return goOn
	}
	p.ensureWorkerService()
	if p.isAnyMoved() {
		// The write of the record wakes the next pass.
		return goOn
	}
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		if p.pods[replica.Pod] != nil || p.completed().has(replica.Rank) || p.isPodTaken(replica.Pod) {
			continue
		}
		if p.mayCreate(names.TaskName(&p.Job.Spec.Tasks[replica.Task])) {
			p.createPod(p.builder.Worker(&p.assignment, replica))
		}
	}
	if len(p.decision.CreatePods) > 0 && !p.ensureNodes() {
		p.decision.CreatePods = nil
	}
	return goOn
}
