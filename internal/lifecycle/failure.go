// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// defaultBackoffLimit is how often a job is restarted where it does not say.
	defaultBackoffLimit int32 = 3
	// exitTerminated is the exit code of a process that SIGTERM ended.
	exitTerminated = 143
	// ignoredDelay is how long a pod whose failure is ignored is left alone
	// before it is made again, as nothing else bounds how often it is.
	ignoredDelay = 10 * time.Second
)

// failure is a failed pod that was not counted yet, and what comes of it.
type failure struct {
	pod    *corev1.Pod
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
	p.status().LastFailure = failureOf(gravest.pod, p.now)
	if p.status().LastFailure.Reason == v2alpha1.ReasonOOMKilled {
		p.event(corev1.EventTypeWarning, v2alpha1.ReasonOOMKilled, fmt.Sprintf("pod %s was killed as it used more memory than its limit", gravest.pod.Name))
	}
	switch gravest.action {
	case v2alpha1.FailurePolicyFailJob:
		p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s, which fails the job by rule %d of its failurePolicy",
			gravest.pod.Name, causeOf(gravest.pod), gravest.rule))
	case v2alpha1.FailurePolicyRestartReplica:
		p.restartReplicas(failures)
	case v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyIgnore:
		p.restartJob(gravest.pod)
	}
	return settled
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
		found := failure{pod: pod, rank: seat.Rank}
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
	return replicaRestartOf(pod) < p.Job.Status.ReplicaRestarts[pod.Name]
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
	main := mainTermination(pod)
	if main == nil || main.ExitCode == 0 {
		return false
	}
	return slices.Contains(rule.OnExitCodes.Values, main.ExitCode) == (rule.OnExitCodes.Operator == v2alpha1.ExitCodesIn)
}

// restartJob starts the next attempt, if there may be one more.
func (p *pass) restartJob(failed *corev1.Pod) {
	status := p.status()
	if limit := p.backoffLimit(); limit >= 0 && status.Restarts >= limit {
		p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %d restarts, the limit is %d",
			failed.Name, causeOf(failed), status.Restarts, limit))
		return
	}
	status.Restarts++
	status.CompletedRanks, status.ReplicaRestarts = "", nil
	p.setPhase(v2alpha1.JobRestarting, fmt.Sprintf("pod %s has failed%s, %s", failed.Name, causeOf(failed), p.restartMessage()))
}

// restartReplicas lets only the failed replicas start again, each as often as
// the limit allows beyond the job's restarts.
func (p *pass) restartReplicas(failures []failure) {
	status := p.status()
	status.ReplicaRestarts = maps.Clone(status.ReplicaRestarts)
	if status.ReplicaRestarts == nil {
		status.ReplicaRestarts = map[string]int32{}
	}
	limit := p.backoffLimit()
	for _, failed := range failures {
		name, restarts := failed.pod.Name, replicaRestartOf(failed.pod)
		if limit >= 0 && status.Restarts+restarts >= limit {
			p.finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %d restarts of the job and %d of its own, the limit is %d",
				name, causeOf(failed.pod), status.Restarts, restarts, limit))
			return
		}
		status.ReplicaRestarts[name] = restarts + 1
		p.event(corev1.EventTypeWarning, v2alpha1.ReasonReplicaRestarting,
			fmt.Sprintf("pod %s has failed%s and is made again alone, for the %d. time", name, causeOf(failed.pod), restarts+1))
	}
}

func (p *pass) backoffLimit() int32 {
	if p.Job.Spec.BackoffLimit != nil {
		return *p.Job.Spec.BackoffLimit
	}
	return defaultBackoffLimit
}

// hasFailed tells whether a pod failed by what it ran. One that its node lost
// sight of counts as failed; one of a preemptible job that was asked to leave,
// saved its work and left does not.
func hasFailed(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	if job.Spec.Preemptible {
		if main := mainTermination(pod); main != nil && main.ExitCode == exitTerminated {
			return false
		}
	}
	return (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodUnknown) && !isBlameless(pod)
}

// mayReplaceWorker tells whether a failed pod may be made again now: one whose
// failure is ignored only in a while.
func (p *pass) mayReplaceWorker(seat *workload.Seat, pod *corev1.Pod) bool {
	if !hasFailed(p.Job, pod) || p.isCounted(pod) {
		return true
	}
	if action, _ := actionFor(p.Job, seat, pod); action != v2alpha1.FailurePolicyIgnore {
		return true
	}
	left := endTime(pod).Add(ignoredDelay).Sub(p.Now)
	if left <= 0 {
		return true
	}
	p.requeueAfter(left)
	return false
}

// replicaRestartOf returns which restart of its replica alone made the pod.
func replicaRestartOf(pod *corev1.Pod) int32 {
	return annotatedNumber(pod, names.AnnotationReplicaRestart, 0)
}

// failureOf says how a pod failed.
func failureOf(pod *corev1.Pod, now metav1.Time) *v2alpha1.LastFailure {
	failure := &v2alpha1.LastFailure{Pod: pod.Name, Reason: pod.Status.Reason, Message: pod.Status.Message, Time: &now}
	if main := mainTermination(pod); main != nil {
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

// causeOf says in brackets how a worker's pod failed, as far as it is known.
func causeOf(pod *corev1.Pod) string {
	main := mainTermination(pod)
	switch {
	case main == nil && pod.Status.Reason == "":
		return ""
	case main == nil:
		return fmt.Sprintf(" (%s)", pod.Status.Reason)
	case main.Reason == "" || main.Reason == "Error":
		return fmt.Sprintf(" (exit code %d)", main.ExitCode)
	}
	return fmt.Sprintf(" (exit code %d, %s)", main.ExitCode, main.Reason)
}
