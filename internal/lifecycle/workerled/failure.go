// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/handshake"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// defaultBackoffLimit is the maximum number of restarts of a job whose spec sets no limit.
	defaultBackoffLimit int32 = 3
	// ignoredDelay is the delay before a pod whose failure is ignored is recreated. Nothing else
	// bounds how often that happens.
	ignoredDelay = 5 * time.Second
	// firstRestartBackoff is the minimum duration of an attempt once a job has restarted more often
	// than the default limit allows. It doubles with each further restart.
	firstRestartBackoff = 2 * time.Second
)

// failure is a failed pod that is not counted yet, with the action that follows.
type failure struct {
	pod    *corev1.Pod
	task   v2alpha1.TaskType
	rank   int32
	action v2alpha1.FailurePolicyAction
	// rule is the index of the failure policy's rule that matched, -1 for none.
	rule int
}

// countFailures records the action that follows from the new failures; the most serious action
// applies to all of them. Pods are deleted once it is recorded.
func (a *assigned) countFailures() state.Result {
	failures := a.failures()
	if len(failures) == 0 {
		return state.Continue
	}
	slices.SortStableFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(gravity(a.action), gravity(b.action)), cmp.Compare(a.rank, b.rank))
	})
	gravest := failures[0]
	a.out.RecordLastFailure(podstate.Failure(gravest.pod, a.in.Timestamp))
	for i := range failures {
		a.out.RecordFailure(failures[i].task, failures[i].pod)
	}
	a.reportOutOfMemory(failures)
	switch gravest.action {
	case v2alpha1.FailurePolicyFailJob:
		a.out.Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s, which fails the job by rule %d of its failurePolicy",
			gravest.pod.Name, podstate.FailureCause(gravest.pod), gravest.rule))
	case v2alpha1.FailurePolicyRestartReplica:
		a.restartReplicas(failures)
	case v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyIgnore:
		a.restartJob(gravest.pod)
	}
	return state.Settled
}

// reportOutOfMemory records one event for the new failures that exceeded their memory limit.
func (a *assigned) reportOutOfMemory(failures []failure) {
	var killed []string
	for i := range failures {
		if state.FailureReason(a.in.Job, failures[i].pod) == v2alpha1.ReasonOOMKilled {
			killed = append(killed, failures[i].pod.Name)
		}
	}
	if len(killed) == 0 {
		return
	}
	text := fmt.Sprintf("pod %s was killed because it used more memory than its limit", killed[0])
	if others := len(killed) - 1; others > 0 {
		text += ", and so " + english.PluralWord(others, "was ", "were ") + english.Plural(others, "other", "")
	}
	a.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonOOMKilled, text)
}

// gravity orders actions, the most serious first.
func gravity(action v2alpha1.FailurePolicyAction) int {
	return slices.Index([]v2alpha1.FailurePolicyAction{
		v2alpha1.FailurePolicyFailJob, v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyRestartReplica,
	}, action)
}

// failures returns the failed pods that count against the limit and are not counted yet.
func (a *assigned) failures() []failure {
	var failures []failure
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		pod := a.in.PodNamed[replica.Pod]
		if pod == nil || !state.HasFailed(a.in.Job, pod) || a.facts.isCounted(pod) || a.facts.hasGrown(a.sizes, replica, pod) {
			continue
		}
		found := failure{pod: pod, task: a.in.Job.Spec.Tasks[replica.Task].Type, rank: replica.Rank}
		found.action, found.rule = actionFor(a.in.Job, replica, pod)
		if found.action != v2alpha1.FailurePolicyIgnore && !a.isVictim(replica, pod) {
			failures = append(failures, found)
		}
	}
	return append(failures, a.failedLeaving()...)
}

// isVictim reports whether a replica failed because another one cannot start, so that its failure is a
// disruption. A rule of the failure policy that fails the job, or ignores the failure, comes first.
func (a *assigned) isVictim(replica *workload.Replica, pod *corev1.Pod) bool {
	if !state.HasGivenUp(a.in.Job, pod) || a.facts.isCounted(pod) {
		return false
	}
	action, _ := actionFor(a.in.Job, replica, pod)
	return action != v2alpha1.FailurePolicyFailJob && action != v2alpha1.FailurePolicyIgnore && a.findStall() != nil
}

// findStall returns why a replica cannot start, nil if all can.
func (a *assigned) findStall() *state.Stall {
	if a.stall == nil {
		found := a.out.FindStall()
		a.stall = &found
	}
	return *a.stall
}

// failedLeaving returns the failed excess pods that had not handed over their state. They have no
// replica to restart alone, so the job restarts instead.
func (a *assigned) failedLeaving() []failure {
	var failures []failure
	for _, pod := range a.in.Pods {
		task, rank := handshake.TaskOf(a.in.Job, pod), podstate.Rank(pod)
		if !a.handshake.HadState(pod) || a.isDesired(pod) || !state.HasFailed(a.in.Job, pod) {
			continue
		}
		found := failure{pod: pod, task: a.in.Job.Spec.Tasks[task].Type, rank: rank}
		found.action, found.rule = actionFor(a.in.Job, &workload.Replica{Task: task, Rank: rank, Pod: pod.Name}, pod)
		if found.action == v2alpha1.FailurePolicyRestartReplica {
			found.action = v2alpha1.FailurePolicyRestartJob
		}
		if found.action != v2alpha1.FailurePolicyIgnore {
			failures = append(failures, found)
		}
	}
	return failures
}

// isDesired reports whether a pod belongs to a desired replica.
func (a *assigned) isDesired(pod *corev1.Pod) bool {
	return slices.ContainsFunc(a.assignment.Replicas, func(replica workload.Replica) bool { return replica.Pod == pod.Name })
}

// isCounted reports whether a pod's failure is recorded as a restart of its replica
// alone.
func (f *facts) isCounted(pod *corev1.Pod) bool {
	recorded := f.in.Job.Status.ReplicaRestarts[pod.Name]
	return podstate.PlausibleCount(podstate.ReplicaRestarts(pod), recorded) < recorded
}

// actionFor returns the action that follows the failure of a replica's pod, and the index of the
// failure policy's rule that decides it. If no rule matches, the job restarts.
func actionFor(job *v2alpha1.DIJob, replica *workload.Replica, pod *corev1.Pod) (v2alpha1.FailurePolicyAction, int) {
	if job.Spec.FailurePolicy != nil {
		task := names.TaskName(&job.Spec.Tasks[replica.Task])
		for i := range job.Spec.FailurePolicy.Rules {
			if rule := &job.Spec.FailurePolicy.Rules[i]; matches(rule, task, pod) {
				return rule.Action, i
			}
		}
	}
	return v2alpha1.FailurePolicyRestartJob, -1
}

// matches reports whether a rule covers the failure of a task's pod. A rule about exit codes does
// not match an unknown exit code.
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

// restartJob starts the next attempt, unless the limit is reached.
func (a *assigned) restartJob(failed *corev1.Pod) {
	attempts := a.out.Attempts()
	if limit := a.facts.backoffLimit(); limit >= 0 && attempts.Restarts >= limit || attempts.Restarts == math.MaxInt32 {
		a.out.Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %s, the limit is %d",
			failed.Name, podstate.FailureCause(failed), english.Plural(int(attempts.Restarts), "restart", ""), limit))
		return
	}
	attempts.Restarts = limits.Sum(attempts.Restarts, 1)
	attempts.CompletedRanks, attempts.ReplicaRestarts = "", nil
	a.out.RecordAttempts(attempts)
	a.out.EnterPhase(v2alpha1.JobRestarting, fmt.Sprintf("pod %s has failed%s, %s", failed.Name, podstate.FailureCause(failed), a.facts.restartMessage(attempts.Restarts)))
}

func (f *facts) restartMessage(restarts int32) string {
	return ordinal(restarts, f.backoffLimit()) + " is in progress"
}

// ordinal describes which restart this is, with the limit if there is one.
func ordinal(restart, limit int32) string {
	if limit < 0 {
		return fmt.Sprintf("restart %d", restart)
	}
	return fmt.Sprintf("restart %d of %d", restart, limit)
}

// restartReplicas restarts only the failed replicas. The limit bounds the restarts of each replica,
// together with those of the job.
func (a *assigned) restartReplicas(failures []failure) {
	attempts, limit := a.out.Attempts(), a.facts.backoffLimit()
	for _, failed := range failures {
		if restarts := a.restartsOf(failed.pod); limit >= 0 && limits.Sum(attempts.Restarts, restarts) >= limit {
			a.out.Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %s of the job and %d of its own, the limit is %d",
				failed.pod.Name, podstate.FailureCause(failed.pod), english.Plural(int(attempts.Restarts), "restart", ""), restarts, limit))
			return
		}
	}
	own := maps.Clone(attempts.ReplicaRestarts)
	if own == nil {
		own = map[string]int32{}
	}
	for _, failed := range failures {
		restarts := limits.Sum(a.restartsOf(failed.pod), 1)
		own[failed.pod.Name] = restarts
		a.out.Decision.ReplicaRestarts = append(a.out.Decision.ReplicaRestarts, state.Failure{TaskType: failed.task, Reason: state.FailureReason(a.in.Job, failed.pod)})
		a.out.Decision.Events = append(a.out.Decision.Events, state.Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonReplicaRestarting, Pod: failed.pod.Name,
			Message: fmt.Sprintf("pod %s has failed%s and restarts alone, %s",
				failed.pod.Name, podstate.FailureCause(failed.pod), ordinal(restarts, max(limit-attempts.Restarts, -1))),
		})
	}
	attempts.ReplicaRestarts = own
	a.out.RecordAttempts(attempts)
}

func (f *facts) backoffLimit() int32 {
	if f.in.Job.Spec.BackoffLimit != nil {
		return *f.in.Job.Spec.BackoffLimit
	}
	return defaultBackoffLimit
}

// restartBackoff returns the minimum duration of an attempt. With a high limit or none, a job that
// fails at once each time would otherwise keep the cluster busy.
func restartBackoff(restarts int32) time.Duration {
	var backoff time.Duration
	for range min(restarts-defaultBackoffLimit, 10) {
		backoff = min(max(2*backoff, firstRestartBackoff), state.LongestBackoff)
	}
	return backoff
}

// isKept reports whether a finished pod stays until the backoff of that many restarts is over. If
// so, it requeues the job for that time.
func isKept(out *state.Plan, now time.Time, pod *corev1.Pod, restarts int32) bool {
	backoff := restartBackoff(restarts)
	if backoff == 0 || !podstate.Finished(pod) || podstate.Terminating(pod) {
		return false
	}
	left := pod.CreationTimestamp.Add(backoff).Sub(now)
	if left <= 0 {
		return false
	}
	out.RequeueAfter(left)
	return true
}

// mayReplaceWorker reports whether a failed pod may be recreated now. A pod whose
// failure is ignored waits for ignoredDelay, a disrupted one for the backoff.
func (a *assigned) mayReplaceWorker(replica *workload.Replica, pod *corev1.Pod) bool {
	if !podstate.FailedOrLost(pod) {
		return false
	}
	if !state.HasFailed(a.in.Job, pod) || a.isVictim(replica, pod) {
		return !a.out.BackingOff
	}
	if action, _ := actionFor(a.in.Job, replica, pod); action != v2alpha1.FailurePolicyIgnore {
		return true
	}
	left := podstate.FinishTime(pod).Add(ignoredDelay).Sub(a.in.Now)
	if left <= 0 {
		return true
	}
	a.out.RequeueAfter(left)
	return false
}

// restartsOf returns how often the replica of a failed pod was restarted alone.
func (a *assigned) restartsOf(pod *corev1.Pod) int32 {
	return podstate.PlausibleCount(podstate.ReplicaRestarts(pod), a.out.Status().ReplicaRestarts[pod.Name])
}

// backOffDisrupted delays pods that are disrupted again within the backoff.
func (a *assigned) backOffDisrupted() state.Result {
	disrupted := a.disruptedReplicas()
	switch stall := a.findStall(); {
	case len(disrupted) == 0:
	case stall != nil && stall.IsOver:
		// The replicas that gave up meanwhile would count as failed from now on.
		a.out.ReportDisruption(disrupted)
	default:
		a.out.BackingOff = !a.out.MayRecreate(disrupted)
	}
	return state.Continue
}

// disruptedReplicas returns the disrupted pods of desired replicas.
func (a *assigned) disruptedReplicas() []state.DisruptedPod {
	var found []state.DisruptedPod
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		if pod := a.in.PodNamed[replica.Pod]; pod != nil && podstate.FailedOrLost(pod) && !podstate.Terminating(pod) && (!state.HasFailed(a.in.Job, pod) || a.isVictim(replica, pod)) {
			found = append(found, state.DisruptedPod{Pod: pod, Task: a.in.Job.Spec.Tasks[replica.Task].Type})
		}
	}
	return found
}

// isAllReady reports whether every desired replica is ready or has succeeded. During a restart no
// replica is.
func (a *assigned) isAllReady() bool {
	isSeated := len(a.assignment.Replicas) == int(a.facts.counts.Total)
	return isSeated && !slices.ContainsFunc(a.assignment.Replicas, func(replica workload.Replica) bool {
		pod := a.in.PodNamed[replica.Pod]
		return !a.completed().Has(replica.Rank) && (pod == nil || !podstate.Ready(pod))
	})
}
