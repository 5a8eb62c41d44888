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
func (f *failing) countFailures() state.Result {
	failures := f.failures()
	if len(failures) == 0 {
		return state.Continue
	}
	slices.SortStableFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(gravity(a.action), gravity(b.action)), cmp.Compare(a.rank, b.rank))
	})
	gravest := failures[0]
	f.out.RecordLastFailure(podstate.Failure(gravest.pod, f.in.Timestamp))
	for i := range failures {
		f.out.RecordFailure(failures[i].task, failures[i].pod)
	}
	f.reportOutOfMemory(failures)
	switch gravest.action {
	case v2alpha1.FailurePolicyFailJob:
		f.out.Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s, which fails the job by rule %d of its failurePolicy",
			gravest.pod.Name, podstate.FailureCause(gravest.pod), gravest.rule))
	case v2alpha1.FailurePolicyRestartReplica:
		f.restartReplicas(failures)
	case v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyIgnore:
		f.restartJob(gravest.pod)
	}
	return state.Settled
}

// reportOutOfMemory records one event for the new failures that exceeded their memory limit.
func (f *failing) reportOutOfMemory(failures []failure) {
	var killed []string
	for i := range failures {
		if state.FailureReason(f.in.Job, failures[i].pod) == v2alpha1.ReasonOOMKilled {
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
	f.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonOOMKilled, text)
}

// gravity orders actions, the most serious first.
func gravity(action v2alpha1.FailurePolicyAction) int {
	return slices.Index([]v2alpha1.FailurePolicyAction{
		v2alpha1.FailurePolicyFailJob, v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyRestartReplica,
	}, action)
}

// failures returns the failed pods that count against the limit and are not counted yet.
func (f *failing) failures() []failure {
	var failures []failure
	for i := range f.ranked.assignment.Replicas {
		replica := &f.ranked.assignment.Replicas[i]
		pod := f.in.PodNamed[replica.Pod]
		if pod == nil || !state.HasFailed(f.in.Job, pod) || f.facts.isCounted(pod) || f.facts.hasGrown(f.sizes, replica, pod) {
			continue
		}
		found := failure{pod: pod, task: f.in.Job.Spec.Tasks[replica.Task].Type, rank: replica.Rank}
		found.action, found.rule = actionFor(f.in.Job, replica, pod)
		if found.action != v2alpha1.FailurePolicyIgnore && !f.isVictim(replica, pod) {
			failures = append(failures, found)
		}
	}
	return append(failures, f.failedLeaving()...)
}

// isVictim reports whether a replica failed because another one cannot start, so that its failure is a
// disruption. A rule of the failure policy that fails the job, or ignores the failure, comes first.
func (f *failing) isVictim(replica *workload.Replica, pod *corev1.Pod) bool {
	if !state.HasGivenUp(f.in.Job, pod) || f.facts.isCounted(pod) {
		return false
	}
	action, _ := actionFor(f.in.Job, replica, pod)
	return action != v2alpha1.FailurePolicyFailJob && action != v2alpha1.FailurePolicyIgnore && f.stall != nil
}

// failedLeaving returns the failed excess pods that had not handed over their state. They have no
// replica to restart alone, so the job restarts instead.
func (f *failing) failedLeaving() []failure {
	var failures []failure
	for _, pod := range f.in.Pods {
		task, rank := handshake.TaskOf(f.in.Job, pod), podstate.Rank(pod)
		if !f.handshake.HadState(pod) || f.ranked.isDesired(pod) || !state.HasFailed(f.in.Job, pod) {
			continue
		}
		found := failure{pod: pod, task: f.in.Job.Spec.Tasks[task].Type, rank: rank}
		found.action, found.rule = actionFor(f.in.Job, &workload.Replica{Task: task, Rank: rank, Pod: pod.Name}, pod)
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
func (a *ranked) isDesired(pod *corev1.Pod) bool {
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
func (f *failing) restartJob(failed *corev1.Pod) {
	attempts := f.out.Attempts()
	if limit := f.facts.backoffLimit(); limit >= 0 && attempts.Restarts >= limit || attempts.Restarts == math.MaxInt32 {
		f.out.Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %s, the limit is %d",
			failed.Name, podstate.FailureCause(failed), english.Plural(int(attempts.Restarts), "restart", ""), limit))
		return
	}
	attempts.Restarts = limits.Sum(attempts.Restarts, 1)
	attempts.CompletedRanks, attempts.ReplicaRestarts = "", nil
	f.out.RecordAttempts(attempts)
	f.out.EnterPhase(v2alpha1.JobRestarting, fmt.Sprintf("pod %s has failed%s, %s", failed.Name, podstate.FailureCause(failed), f.facts.restartMessage(attempts.Restarts)))
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
func (f *failing) restartReplicas(failures []failure) {
	attempts, limit := f.out.Attempts(), f.facts.backoffLimit()
	for _, failed := range failures {
		if restarts := f.restartsOf(failed.pod); limit >= 0 && limits.Sum(attempts.Restarts, restarts) >= limit {
			f.out.Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %s of the job and %d of its own, the limit is %d",
				failed.pod.Name, podstate.FailureCause(failed.pod), english.Plural(int(attempts.Restarts), "restart", ""), restarts, limit))
			return
		}
	}
	own := maps.Clone(attempts.ReplicaRestarts)
	if own == nil {
		own = map[string]int32{}
	}
	for _, failed := range failures {
		restarts := limits.Sum(f.restartsOf(failed.pod), 1)
		own[failed.pod.Name] = restarts
		f.out.Decision.ReplicaRestarts = append(f.out.Decision.ReplicaRestarts, state.Failure{TaskType: failed.task, Reason: state.FailureReason(f.in.Job, failed.pod)})
		f.out.Decision.Events = append(f.out.Decision.Events, state.Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonReplicaRestarting, Pod: failed.pod.Name,
			Message: fmt.Sprintf("pod %s has failed%s and restarts alone, %s",
				failed.pod.Name, podstate.FailureCause(failed.pod), ordinal(restarts, max(limit-attempts.Restarts, -1))),
		})
	}
	attempts.ReplicaRestarts = own
	f.out.RecordAttempts(attempts)
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
func (s *staffing) mayReplaceWorker(replica *workload.Replica, pod *corev1.Pod) bool {
	if !podstate.FailedOrLost(pod) {
		return false
	}
	if !state.HasFailed(s.in.Job, pod) || s.disruptions.victims[pod] {
		return !s.disruptions.isBackingOff
	}
	if action, _ := actionFor(s.in.Job, replica, pod); action != v2alpha1.FailurePolicyIgnore {
		return true
	}
	left := podstate.FinishTime(pod).Add(ignoredDelay).Sub(s.in.Now)
	if left <= 0 {
		return true
	}
	s.out.RequeueAfter(left)
	return false
}

// restartsOf returns how often the replica of a failed pod was restarted alone.
func (f *failing) restartsOf(pod *corev1.Pod) int32 {
	return podstate.PlausibleCount(podstate.ReplicaRestarts(pod), f.out.Status().ReplicaRestarts[pod.Name])
}

// backOffDisrupted returns the disruptions. It delays pods that are disrupted again within the backoff.
func (f *failing) backOffDisrupted() disruptions {
	found := disruptions{victims: f.victims()}
	switch disrupted := f.disruptedReplicas(found.victims); {
	case len(disrupted) == 0:
	case f.stall != nil && f.stall.IsOver:
		// The replicas that gave up meanwhile would count as failed from now on.
		f.out.ReportDisruption(disrupted)
	default:
		found.isBackingOff = !f.out.MayRecreate(disrupted)
	}
	return found
}

// victims returns the pods of replicas that failed because another one cannot start.
func (f *failing) victims() map[*corev1.Pod]bool {
	victims := map[*corev1.Pod]bool{}
	for i := range f.ranked.assignment.Replicas {
		replica := &f.ranked.assignment.Replicas[i]
		if pod := f.in.PodNamed[replica.Pod]; pod != nil && f.isVictim(replica, pod) {
			victims[pod] = true
		}
	}
	return victims
}

// disruptedReplicas returns the disrupted pods of desired replicas.
func (f *failing) disruptedReplicas(victims map[*corev1.Pod]bool) []state.DisruptedPod {
	var found []state.DisruptedPod
	for i := range f.ranked.assignment.Replicas {
		replica := &f.ranked.assignment.Replicas[i]
		if pod := f.in.PodNamed[replica.Pod]; pod != nil && podstate.FailedOrLost(pod) && !podstate.Terminating(pod) && (!state.HasFailed(f.in.Job, pod) || victims[pod]) {
			found = append(found, state.DisruptedPod{Pod: pod, Task: f.in.Job.Spec.Tasks[replica.Task].Type})
		}
	}
	return found
}

// isAllReady reports whether every desired replica is ready or has succeeded. During a restart no
// replica is.
func (o *outcome) isAllReady() bool {
	isSeated := len(o.ranked.assignment.Replicas) == int(o.facts.counts.Total)
	return isSeated && !slices.ContainsFunc(o.ranked.assignment.Replicas, func(replica workload.Replica) bool {
		pod := o.in.PodNamed[replica.Pod]
		return !o.ranked.completed.Has(replica.Rank) && (pod == nil || !podstate.Ready(pod))
	})
}
