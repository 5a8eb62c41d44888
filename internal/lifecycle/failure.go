// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// defaultBackoffLimit is how often a job is restarted where it does not say.
	defaultBackoffLimit int32 = 3
	// exitTerminated is the exit code of a process that SIGTERM ended.
	exitTerminated = 143
	// ignoredDelay is how long a pod whose failure is ignored is left alone
	// before it is made again, as nothing else bounds how often it is.
	ignoredDelay = 5 * time.Second
	// shortestAttempt is how long an attempt lasts at least once there were more of
	// them than jobs have by default; each further one lasts twice as long.
	shortestAttempt = 2 * time.Second
	// firstPause is how long a pod waits at least to be made again that was
	// interrupted again. longestPause bounds both.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
)

// failure is a failed pod that was not counted yet, and what comes of it.
type failure struct {
	pod    *corev1.Pod
	task   v2alpha1.TaskType
	rank   int32
	action v2alpha1.FailurePolicyAction
	// rule is the rule of the failure policy that says so, -1 for none.
	rule int
}

// countFailures records what the failures of this round lead to, the gravest
// of them for all. What is to be deleted is deleted once that is recorded.
func countFailures(p *pass) outcome {
	failures := p.failures()
	if len(failures) == 0 {
		return goOn
	}
	slices.SortStableFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(gravity(a.action), gravity(b.action)), cmp.Compare(a.rank, b.rank))
	})
	gravest := failures[0]
	p.status().LastFailure = podstate.Failure(gravest.pod, p.now)
	for i := range failures {
		p.recordFailure(failures[i].task, failures[i].pod)
	}
	p.tellOutOfMemory(failures)
	switch gravest.action {
	case v2alpha1.FailurePolicyFailJob:
		p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s, which fails the job by rule %d of its failurePolicy",
			gravest.pod.Name, podstate.FailureCause(gravest.pod), gravest.rule))
	case v2alpha1.FailurePolicyRestartReplica:
		p.restartReplicas(failures)
	case v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyIgnore:
		p.restartJob(gravest.pod)
	}
	return settled
}

// tellOutOfMemory tells once of the pods of a round that used too much memory.
func (p *pass) tellOutOfMemory(failures []failure) {
	var killed []string
	for i := range failures {
		if failureReason(p.Job, failures[i].pod) == v2alpha1.ReasonOOMKilled {
			killed = append(killed, failures[i].pod.Name)
		}
	}
	if len(killed) == 0 {
		return
	}
	text := fmt.Sprintf("pod %s was killed as it used more memory than its limit", killed[0])
	if others := len(killed) - 1; others > 0 {
		text += fmt.Sprintf(", and so were %d others", others)
	}
	p.event(corev1.EventTypeWarning, v2alpha1.ReasonOOMKilled, text)
}

// gravity orders what failures lead to.
func gravity(action v2alpha1.FailurePolicyAction) int {
	return slices.Index([]v2alpha1.FailurePolicyAction{
		v2alpha1.FailurePolicyFailJob, v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyRestartReplica,
	}, action)
}

// failures returns the failed pods that count and were not counted yet.
func (p *pass) failures() []failure {
	var failures []failure
	for i := range p.roster.Seats {
		seat := &p.roster.Seats[i]
		pod := p.pods[seat.Pod]
		if pod == nil || !hasFailed(p.Job, pod) || p.isCounted(pod) {
			continue
		}
		found := failure{pod: pod, task: p.Job.Spec.Tasks[seat.Task].Type, rank: seat.Rank}
		found.action, found.rule = actionFor(p.Job, seat, pod)
		if found.action != v2alpha1.FailurePolicyIgnore {
			failures = append(failures, found)
		}
	}
	return failures
}

// isCounted tells whether a pod's failure is recorded as a restart of its
// replica alone.
func (p *pass) isCounted(pod *corev1.Pod) bool {
	recorded := p.Job.Status.ReplicaRestarts[pod.Name]
	return believed(replicaRestartOf(pod), recorded) < recorded
}

// actionFor returns what the failure of a seat's pod leads to by the job's
// failure policy, and by which rule of it; by none the job restarts.
func actionFor(job *v2alpha1.DIJob, seat *workload.Seat, pod *corev1.Pod) (v2alpha1.FailurePolicyAction, int) {
	if job.Spec.FailurePolicy != nil {
		task := names.TaskName(&job.Spec.Tasks[seat.Task])
		for i := range job.Spec.FailurePolicy.Rules {
			if rule := &job.Spec.FailurePolicy.Rules[i]; matches(rule, task, pod) {
				return rule.Action, i
			}
		}
	}
	return v2alpha1.FailurePolicyRestartJob, -1
}

// matches tells whether a rule is for the failure of a task's pod. Where no
// exit code is known, a rule about exit codes is not.
func matches(rule *v2alpha1.FailurePolicyRule, task string, pod *corev1.Pod) bool {
	if len(rule.Tasks) > 0 && !slices.Contains(rule.Tasks, task) {
		return false
	}
	if rule.OnExitCodes == nil {
		return true
	}
	main := podstate.MainTermination(pod)
	if main == nil || main.ExitCode == 0 {
		return false
	}
	return slices.Contains(rule.OnExitCodes.Values, main.ExitCode) == (rule.OnExitCodes.Operator == v2alpha1.ExitCodesIn)
}

// restartJob starts the next attempt, if there may be one more.
func (p *pass) restartJob(failed *corev1.Pod) {
	status := p.status()
	if limit := p.backoffLimit(); limit >= 0 && status.Restarts >= limit || status.Restarts == math.MaxInt32 {
		p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %d restarts, the limit is %d",
			failed.Name, podstate.FailureCause(failed), status.Restarts, limit))
		return
	}
	status.Restarts = limits.Sum(status.Restarts, 1)
	status.CompletedRanks, status.ReplicaRestarts = "", nil
	p.enterPhase(v2alpha1.JobRestarting, fmt.Sprintf("pod %s has failed%s, %s", failed.Name, podstate.FailureCause(failed), p.restartMessage()))
}

func (p *pass) restartMessage() string {
	return ordinal(p.status().Restarts, p.backoffLimit()) + " is under way"
}

// ordinal says which restart it is, of how many where there is a limit.
func ordinal(restart, limit int32) string {
	if limit < 0 {
		return fmt.Sprintf("restart %d", restart)
	}
	return fmt.Sprintf("restart %d of %d", restart, limit)
}

// restartReplicas lets only the failed replicas start again, each as often as
// the limit allows beyond the job's restarts.
func (p *pass) restartReplicas(failures []failure) {
	status, limit := p.status(), p.backoffLimit()
	for _, failed := range failures {
		if restarts := p.restartsOf(failed.pod); limit >= 0 && limits.Sum(status.Restarts, restarts) >= limit {
			p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %d restarts of the job and %d of its own, the limit is %d",
				failed.pod.Name, podstate.FailureCause(failed.pod), status.Restarts, restarts, limit))
			return
		}
	}
	status.ReplicaRestarts = maps.Clone(status.ReplicaRestarts)
	if status.ReplicaRestarts == nil {
		status.ReplicaRestarts = map[string]int32{}
	}
	for _, failed := range failures {
		restarts := limits.Sum(p.restartsOf(failed.pod), 1)
		status.ReplicaRestarts[failed.pod.Name] = restarts
		p.decision.ReplicaRestarts = append(p.decision.ReplicaRestarts, Failure{TaskType: failed.task, Reason: failureReason(p.Job, failed.pod)})
		p.decision.Events = append(p.decision.Events, Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonReplicaRestarting, Pod: failed.pod.Name,
			Message: fmt.Sprintf("pod %s has failed%s and is made again alone, %s",
				failed.pod.Name, podstate.FailureCause(failed.pod), ordinal(restarts, max(limit-status.Restarts, -1))),
		})
	}
}

func (p *pass) backoffLimit() int32 {
	if p.Job.Spec.BackoffLimit != nil {
		return *p.Job.Spec.BackoffLimit
	}
	return defaultBackoffLimit
}

// restartPause returns how long the pods of an attempt are kept at least before
// those of the next one are made. What fails at once every time would else keep
// the cluster busy, where the limit is high or there is none.
func restartPause(restarts int32) time.Duration {
	var pause time.Duration
	for range min(restarts-defaultBackoffLimit, 10) {
		pause = min(max(2*pause, shortestAttempt), longestPause)
	}
	return pause
}

// isKept tells whether an ended pod is still in the way of the one that a
// restart of so many makes again, and if so has it looked at later.
func (p *pass) isKept(pod *corev1.Pod, restarts int32) bool {
	pause := restartPause(restarts)
	if pause == 0 || !podstate.Finished(pod) || podstate.Terminating(pod) {
		return false
	}
	left := pod.CreationTimestamp.Add(pause).Sub(p.Now)
	if left <= 0 {
		return false
	}
	p.requeueAfter(left)
	return true
}

// Failure is the end of a pod that was recorded.
type Failure struct {
	// TaskType is the type of the pod's task.
	TaskType v2alpha1.TaskType
	// Reason is one of FailureReasons.
	Reason string
}

// recordFailure has the end of a pod counted once the status is written.
func (p *pass) recordFailure(task v2alpha1.TaskType, pod *corev1.Pod) {
	p.decision.Failures = append(p.decision.Failures, Failure{TaskType: task, Reason: failureReason(p.Job, pod)})
}

// FailureReasons are the reasons of pods that ended before their work was done.
func FailureReasons() []string {
	return []string{
		v2alpha1.ReasonError, v2alpha1.ReasonOOMKilled, v2alpha1.ReasonContainerStart, v2alpha1.ReasonDeadlineExceeded, v2alpha1.ReasonNodeLost,
		v2alpha1.ReasonRejected, v2alpha1.ReasonEvicted, v2alpha1.ReasonPreempted, v2alpha1.ReasonLeft,
	}
}

// failureReason classifies how a pod ended, as one of FailureReasons.
func failureReason(job *v2alpha1.DIJob, pod *corev1.Pod) string {
	if podstate.Disruption(pod) == "" && hasLeft(job, pod) {
		return v2alpha1.ReasonLeft
	}
	return podstate.FailureReason(pod)
}

// hasFailed reports whether a pod failed by its own process. A pod whose node lost
// contact with it counts as failed; a pod of a preemptible job that was asked to
// exit, saved its work and exited does not.
func hasFailed(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	return podstate.FailedOrLost(pod) && !podstate.Disrupted(pod) && !hasLeft(job, pod)
}

// hasLeft reports whether a replica of a preemptible job was asked to exit, saved
// its work and exited.
func hasLeft(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	main := podstate.MainTermination(pod)
	return job.Spec.Preemptible && main != nil && main.ExitCode == exitTerminated
}

// mayReplaceWorker tells whether a failed pod may be made again now: one whose
// failure is ignored only in a while, and one that was interrupted again.
func (p *pass) mayReplaceWorker(seat *workload.Seat, pod *corev1.Pod) bool {
	if !podstate.FailedOrLost(pod) {
		return false
	}
	if !hasFailed(p.Job, pod) {
		return !p.pausing
	}
	if action, _ := actionFor(p.Job, seat, pod); action != v2alpha1.FailurePolicyIgnore {
		return true
	}
	left := podstate.FinishTime(pod).Add(ignoredDelay).Sub(p.Now)
	if left <= 0 {
		return true
	}
	p.requeueAfter(left)
	return false
}

// restartsOf returns how often a replica was restarted alone before it failed.
func (p *pass) restartsOf(pod *corev1.Pod) int32 {
	return believed(replicaRestartOf(pod), p.status().ReplicaRestarts[pod.Name])
}

// replicaRestartOf returns which restart of its replica alone made the pod.
func replicaRestartOf(pod *corev1.Pod) int32 {
	return annotatedNumber(pod, names.AnnotationReplicaRestart, 0)
}
