// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/workload"
)

// defaultBackoffLimit is how often a job is restarted where it does not say.
const defaultBackoffLimit int32 = 3

// exitTerminated is the exit code of a process that SIGTERM ended.
const exitTerminated = 143

// workerRules are the rules of a worker-led job, in order.
func workerRules() []rule {
	return []rule{
		{"the wanted counts are recorded", recordCounts},
		{"a finished job is kept for so long", expire},
		{"what a finished job needs no longer is deleted", cleanUp},
		{"a job is active for so long", endAtDeadline},
		{"the pods of an attempt that failed are deleted", removeStale},
		{"every replica has its seat", seatAll},
		{"a failure is counted", countFailure},
		{"ranks that have succeeded are recorded", recordCompleted},
		{"a job whose ranks have all succeeded has succeeded", succeed},
		{"a suspended job has no pods", suspend},
		{"what has no seat, or failed by what befell it, is deleted", removeUnseated},
		{"every seat is filled", ensureWorkers},
	}
}

// recordCounts writes what the job is to have, and what it was derived from.
func recordCounts(p *pass) outcome {
	p.counts = wantedCounts(p.Job)
	status := p.status()
	if !IsFinished(&p.Job.Status) {
		status.Replicas = p.counts.total
		status.Scaling = &v2alpha1.ScalingStatus{SpecReplicas: p.counts.spec, LastReplicas: p.counts.total}
	}
	// Pods know of restarts that a status restored from a backup does not.
	for _, pod := range p.Pods {
		status.Restarts = max(status.Restarts, attemptOf(pod))
	}
	return goOn
}

// removeStale deletes the pods of earlier attempts, and waits until they are
// gone: their names are the next attempt's.
func removeStale(p *pass) outcome {
	stale := false
	for _, pod := range p.Pods {
		if attemptOf(pod) < p.status().Restarts {
			stale = true
			p.deletePod(pod)
		}
	}
	if stale {
		p.setPhase(v2alpha1.JobRestarting, p.restartMessage())
		return settled
	}
	return goOn
}

func (p *pass) restartMessage() string {
	return fmt.Sprintf("restart %d is under way", p.status().Restarts)
}

func seatAll(p *pass) outcome {
	p.roster = seatReplicas(p.Job, p.counts.byTask, p.status().Restarts, p.pods)
	return goOn
}

// countFailure records one restart, or the end, for however many pods failed
// in this attempt. What is to be deleted is deleted once that is recorded.
func countFailure(p *pass) outcome {
	failed := p.firstFailed()
	if failed == nil {
		return goOn
	}
	status := p.status()
	status.LastFailure = failureOf(failed, "", p.now)
	limit := defaultBackoffLimit
	if p.Job.Spec.BackoffLimit != nil {
		limit = *p.Job.Spec.BackoffLimit
	}
	if limit >= 0 && status.Restarts >= limit {
		p.recordCompleted()
		p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed after %d restarts, the limit is %d", failed.Name, status.Restarts, limit))
		return settled
	}
	status.Restarts++
	status.CompletedRanks = ""
	p.setPhase(v2alpha1.JobRestarting, fmt.Sprintf("pod %s has failed, %s", failed.Name, p.restartMessage()))
	return settled
}

// firstFailed returns the failed pod of the lowest rank, nil where none counts.
func (p *pass) firstFailed() *corev1.Pod {
	var failed *corev1.Pod
	lowest := unranked
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		pod := p.pods[seat.Pod]
		if pod != nil && hasFailed(p.Job, pod) && (failed == nil || seat.Rank < lowest) {
			failed, lowest = pod, seat.Rank
		}
	}
	return failed
}

// hasFailed tells whether a pod failed by what it ran. One that its node lost
// sight of counts as failed; one of a preemptible job that was asked to leave,
// saved its work and left does not.
func hasFailed(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	if job.Spec.Preemptible {
		if main := mainTermination(pod, ""); main != nil && main.ExitCode == exitTerminated {
			return false
		}
	}
	return (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodUnknown) && !isBlameless(pod)
}

// failureOf says how a pod failed. A worker's role is "", as no container of
// it is named after one.
func failureOf(pod *corev1.Pod, role string, now metav1.Time) *v2alpha1.LastFailure {
	failure := &v2alpha1.LastFailure{Pod: pod.Name, Reason: pod.Status.Reason, Message: pod.Status.Message, Time: &now}
	if main := mainTermination(pod, role); main != nil {
		failure.ExitCode = &main.ExitCode
		if failure.Reason == "" {
			failure.Reason = main.Reason
		}
		if failure.Message == "" {
			failure.Message = main.Message
		}
	}
	return failure
}

func recordCompleted(p *pass) outcome {
	p.recordCompleted()
	return goOn
}

// recordCompleted writes which of the wanted ranks have succeeded: those that
// are recorded already, and those whose pods show it now.
func (p *pass) recordCompleted() {
	completed := map[int32]bool{}
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		pod := p.pods[seat.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !isTerminating(pod)
		if shown || p.isCompleted(seat) {
			completed[seat.Rank] = true
		}
	}
	p.status().CompletedRanks = formatRanks(completed)
}

// isCompleted tells whether a seat's rank is recorded to have succeeded. The
// records of an earlier attempt do not count.
func (p *pass) isCompleted(seat *workload.Seat) bool {
	return p.Job.Status.Restarts == p.roster.Attempt && isRankIn(seat.Rank, p.Job.Status.CompletedRanks)
}

func succeed(p *pass) outcome {
	seats := p.roster.Seats
	if len(seats) == 0 {
		return goOn
	}
	for i := range seats {
		if !isRankIn(seats[i].Rank, p.status().CompletedRanks) {
			return goOn
		}
	}
	p.finish(v2alpha1.JobSucceeded, fmt.Sprintf("all %d replicas have succeeded", len(seats)))
	return settled
}

// removeUnseated deletes pods that shrinking left without a seat, and failed
// ones that do not count, which are made again under the same name.
func removeUnseated(p *pass) outcome {
	seated := make(map[string]bool, len(p.roster.Seats))
	for i := range p.roster.Seats {
		seated[p.roster.Seats[i].Pod] = true
	}
	for _, pod := range p.Pods {
		if !seated[pod.Name] || pod.Status.Phase == corev1.PodFailed {
			p.deletePod(pod)
		}
	}
	return goOn
}

func ensureWorkers(p *pass) outcome {
	p.ensureService(workload.WorkerService(p.Job))
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		if p.pods[seat.Pod] != nil || isRankIn(seat.Rank, p.status().CompletedRanks) {
			continue
		}
		p.createPod(p.builder.Worker(&p.roster, seat))
	}
	return goOn
}
