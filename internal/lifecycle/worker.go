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
		{"what an earlier release made is taken over", adoptWorkers},
		{"what may be resized is written down", nameElastic},
		{"the wanted counts are recorded", recordCounts},
		{"what is placed or sized anew starts anew", reschedule},
		{"a finished job is kept for so long", expire},
		{"what a finished job needs no longer is deleted", cleanUp},
		{"pods that only Kueue holds are let go", releaseHeld},
		{"a job is active for so long", endAtDeadline},
		{"the pods of an earlier attempt or placement are deleted", removeStale},
		{"every replica has its seat", seatAll},
		{"ranks that have succeeded are recorded", recordCompleted},
		{"a job whose deciding ranks have all succeeded has succeeded", succeed},
		{"failures are counted", countFailures},
		{"a suspended job has no pods", suspend},
		{"what befell pods again and again makes them wait", backOffDisrupted},
		{"what has no seat, or failed by what befell it, is deleted", removeUnseated},
		{"what pods were told of each other is kept while they live", keepNodes},
		{"a gang is told of before its pods are", ensureGang},
		{"every seat is filled", ensureWorkers},
	}
}

// rulesOfExcess are those of workerRules that hold also for a job that is to have more
// pods than it may have: they need not know what each of its pods is for.
func rulesOfExcess() []rule {
	return []rule{
		{"what an earlier release made is taken over", adoptWorkers},
		{"what may be resized is written down", nameElastic},
		{"a job is active for so long", endAtDeadline},
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
	roster := seatReplicas(in.Job, in.counts.byTask, &v2alpha1.DIJobStatus{Scaling: &v2alpha1.ScalingStatus{}}, nil, in.toldNodes)
	builder := workload.NewBuilder(in.Job, in.Settings)
	for i := range roster.Seats {
		if i > 0 && roster.Seats[i].Task == roster.Seats[i-1].Task {
			continue
		}
		if _, err := builder.Worker(&roster, &roster.Seats[i]); err != nil {
			return []string{err.Error()}
		}
	}
	return nil
}

// recordCounts writes what the job is to have, and what it was derived from.
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

// lastAllocation returns what is to be recorded of the allocation that is acted on. A
// suspended job acts on no other than before: its pods may still be on their way out
// when it goes on, and then tell whether they were placed otherwise.
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

// learnRestarts takes over what the pods know of restarts, and a status that
// was restored from a backup does not. What is too far ahead for that is not believed:
// it would count against the job for good.
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

// removeStale deletes the pods of earlier attempts and placements, and waits
// until they are gone: their names are the next one's.
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

func seatAll(p *plan) outcome {
	p.roster = seatReplicas(p.Job, p.counts.byTask, p.status(), p.pods, p.toldNodes)
	p.roster.ReplicaRestarts = p.status().ReplicaRestarts
	p.recordRanks()
	p.roster.Subdomain, p.roster.Selector = p.subdomain(), p.selector()
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
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		pod := p.pods[seat.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := p.isCompleted(seat)
		if shown || recorded {
			completed[seat.Rank] = true
		}
		if shown && !recorded {
			p.unrecorded[seat.Pod] = true
		}
	}
	p.status().CompletedRanks = formatRanks(completed)
}

// isCompleted reports whether a seat's rank is recorded to have succeeded. The
// records of an earlier attempt do not count.
func (p *plan) isCompleted(seat *workload.Seat) bool {
	return p.Job.Status.Restarts == p.roster.Attempt && p.Job.Status.Reschedules == p.roster.Reschedule && p.recorded.has(seat.Rank)
}

// succeed ends the job when every replica of the tasks that decide has
// succeeded: of all tasks, where the job does not name any or those that it names
// have no replicas, as nothing else would ever end it.
func succeed(p *plan) outcome {
	seats := slices.DeleteFunc(slices.Clone(p.roster.Seats), func(seat workload.Seat) bool { return !decides(p.Job, seat.Task) })
	if len(seats) == 0 {
		seats = p.roster.Seats
	}
	deciding := len(seats)
	if slices.ContainsFunc(seats, func(seat workload.Seat) bool { return !p.completed().has(seat.Rank) }) {
		return goOn
	}
	switch deciding {
	case 0:
		return goOn
	case len(p.roster.Seats):
		p.finish(v2alpha1.JobSucceeded, fmt.Sprintf("all %d replicas have succeeded", deciding))
	default:
		p.finish(v2alpha1.JobSucceeded, fmt.Sprintf("all %d replicas of the target tasks have succeeded: %s",
			deciding, few(p.Job.Spec.SuccessPolicy.TargetTasks, ", ")))
	}
	return settled
}

// decides reports whether a task is one of those whose success is the job's.
func decides(job *v2alpha1.DIJob, task int) bool {
	policy := job.Spec.SuccessPolicy
	return policy == nil || len(policy.TargetTasks) == 0 || slices.Contains(policy.TargetTasks, names.TaskName(&job.Spec.Tasks[task]))
}

// removeUnseated deletes pods that shrinking left without a seat, those whose
// rank is another's or has succeeded already, those that have succeeded and still
// run, and failed ones that are to be made again under the same name.
func removeUnseated(p *plan) outcome {
	seats := make(map[string]*workload.Seat, len(p.roster.Seats))
	for i := range p.roster.Seats {
		seats[p.roster.Seats[i].Pod] = &p.roster.Seats[i]
	}
	for _, pod := range p.Pods {
		seat := seats[pod.Name]
		switch {
		case seat == nil:
			p.deletePod(pod)
		case pod.Status.Phase == corev1.PodSucceeded:
			// Also one that was given up before it was seen to succeed.
			if podstate.InjectedRuns(pod) && p.cleanPodPolicy() != v2alpha1.CleanPodPolicyNone {
				p.deletePod(pod)
			}
		case hasAnothersRank(seat, pod), p.isCompleted(seat):
			p.deletePod(pod)
		case p.isCounted(pod):
			if !p.isKept(pod, p.status().ReplicaRestarts[pod.Name]) {
				p.deletePod(pod)
			}
		case queueing.IsForsaken(pod), p.mayReplaceWorker(seat, pod), p.hasLostNodes(pod):
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
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		if p.pods[seat.Pod] != nil || p.completed().has(seat.Rank) || p.isPodTaken(seat.Pod) {
			continue
		}
		if p.mayCreate(names.TaskName(&p.Job.Spec.Tasks[seat.Task])) {
			p.createPod(p.builder.Worker(&p.roster, seat))
		}
	}
	if len(p.decision.CreatePods) > 0 && !p.ensureNodes() {
		p.decision.CreatePods = nil
	}
	return goOn
}
