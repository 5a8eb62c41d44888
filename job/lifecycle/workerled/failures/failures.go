// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failures decides what the ends of replicas mean for the attempt of a worker-led job, and which were disruptions.
package failures

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Stage decides what the ends of replicas mean for the attempt.
type Stage struct {
	out       *state.Plan
	in        *state.Input
	facts     *observed.Facts
	ranked    *ranked.Replicas
	sizes     *rightsize.Rules
	handshake *handshake.Handshake
	// stall is why a replica cannot start, nil if all can or none has failed.
	stall *problems.Stall
}

// New returns the rules of the failures of replicas with ranks.
func New(out *state.Plan, job *observed.Facts, r *ranked.Replicas, shake *handshake.Handshake) *Stage {
	f := &Stage{out: out, in: job.In, facts: job, ranked: r, sizes: rightsize.New(out, job.In), handshake: shake}
	if slices.ContainsFunc(f.in.Pods, podstate.FailedOrLost) {
		f.stall = problems.New(out, job.In).FindStall()
	}
	return f
}

// Rules are the rules of failures, in order.
func (f *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "all deciding ranks have succeeded", Apply: f.succeed},
		{Name: "out-of-memory replicas get more memory", Apply: f.growMemory},
		{Name: "failures are counted", Apply: f.countFailures},
		{Name: "a suspended job has no pods", Apply: f.suspendWorkers},
	}
}

// succeed finishes the job once every replica of the deciding tasks has succeeded. All tasks decide
// if the job names none, or if those that it names have no replicas, because the job would
// otherwise never finish.
func (f *Stage) succeed() state.Result {
	replicas := slices.DeleteFunc(slices.Clone(f.ranked.Assignment.Replicas), func(replica workload.Replica) bool { return !decides(f.in.Job, replica.Task) })
	if len(replicas) == 0 {
		replicas = f.ranked.Assignment.Replicas
	}
	deciding := len(replicas)
	if slices.ContainsFunc(replicas, func(replica workload.Replica) bool { return !f.ranked.Completed.Has(replica.Rank) }) {
		return state.Continue
	}
	switch deciding {
	case 0:
		return state.Continue
	case len(f.ranked.Assignment.Replicas):
		problems.New(f.out, f.in).Finish(v2alpha1.JobSucceeded, state.All(deciding, "replica")+english.PluralWord(deciding, " has", " have")+" succeeded")
	default:
		problems.New(f.out, f.in).Finish(v2alpha1.JobSucceeded, fmt.Sprintf("%s of the target tasks %s succeeded: %s",
			state.All(deciding, "replica"), english.PluralWord(deciding, "has", "have"), state.Few(names.DecidingTasks(&f.in.Job.Spec), ", ")))
	}
	return state.Settled
}

// decides reports whether the job's success requires that of the task.
func decides(job *v2alpha1.DIJob, task int) bool {
	deciding := names.DecidingTasks(&job.Spec)
	return len(deciding) == 0 || slices.Contains(deciding, names.TaskName(&job.Spec.Tasks[task]))
}

// growMemory records more memory for replicas whose main container was killed because it used more
// than its limit. This is no failure that counts, up to the maximum of memory and of attempts. A
// policy that fails the job for any of the failures comes first.
func (f *Stage) growMemory() state.Result {
	if f.in.Job.Spec.Autoscale == nil || f.in.Job.Spec.Autoscale.Memory == nil {
		return state.Continue
	}
	failures := f.failures()
	if slices.ContainsFunc(failures, func(failed failure) bool { return failed.action == v2alpha1.FailurePolicyFailJob }) {
		return state.Continue
	}
	var texts, refusals []string
	for i := range f.ranked.Assignment.Replicas {
		replica := &f.ranked.Assignment.Replicas[i]
		pod := f.in.PodNamed[replica.Pod]
		if pod == nil || !state.HasFailed(f.in.Job, pod) || !podstate.OutOfMemory(pod) || f.facts.IsCounted(pod) || f.facts.HasGrown(f.sizes, replica, pod) {
			continue
		}
		sized := identity.Sized(f.in, replica)
		text, refusal := f.sizes.Grow(&sized)
		if refusal != "" {
			refusals = append(refusals, refusal)
			continue
		}
		texts = append(texts, text)
		f.out.RecordLastFailure(podstate.Failure(pod, f.in.Timestamp))
		f.out.RecordFailure(f.in.Job.Spec.Tasks[replica.Task].Type, pod)
	}
	if len(texts) > 0 {
		f.sizes.ReportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
		return state.Settled
	}
	if len(refusals) > 0 && len(failures) > 0 {
		// The kills count as failures.
		f.out.Event(corev1.EventTypeWarning, v2alpha1.OverrideOutOfMemory, state.Few(refusals, "; "))
	}
	return state.Continue
}

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
func (f *Stage) countFailures() state.Result {
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
		problems.New(f.out, f.in).Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s, which fails the job by rule %d of its failurePolicy",
			gravest.pod.Name, podstate.FailureCause(gravest.pod), gravest.rule))
	case v2alpha1.FailurePolicyRestartReplica:
		f.restartReplicas(failures)
	case v2alpha1.FailurePolicyRestartJob, v2alpha1.FailurePolicyIgnore:
		f.restartJob(gravest.pod)
	}
	return state.Settled
}

// reportOutOfMemory records one event for the new failures that exceeded their memory limit.
func (f *Stage) reportOutOfMemory(failures []failure) {
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
func (f *Stage) failures() []failure {
	var failures []failure
	for i := range f.ranked.Assignment.Replicas {
		replica := &f.ranked.Assignment.Replicas[i]
		pod := f.in.PodNamed[replica.Pod]
		if pod == nil || !state.HasFailed(f.in.Job, pod) || f.facts.IsCounted(pod) || f.facts.HasGrown(f.sizes, replica, pod) {
			continue
		}
		found := failure{pod: pod, task: f.in.Job.Spec.Tasks[replica.Task].Type, rank: replica.Rank}
		found.action, found.rule = policy.ActionFor(f.in.Job, replica, pod)
		if found.action != v2alpha1.FailurePolicyIgnore && !f.isVictim(replica, pod) {
			failures = append(failures, found)
		}
	}
	return append(failures, f.failedLeaving()...)
}

// failedLeaving returns the failed excess pods that had not handed over their state. They have no
// replica to restart alone, so the job restarts instead.
func (f *Stage) failedLeaving() []failure {
	var failures []failure
	for _, pod := range f.in.Pods {
		task, rank := handshake.TaskOf(f.in.Job, pod), podstate.Rank(pod)
		if !f.handshake.HadState(pod) || f.ranked.IsDesired(pod) || !state.HasFailed(f.in.Job, pod) {
			continue
		}
		found := failure{pod: pod, task: f.in.Job.Spec.Tasks[task].Type, rank: rank}
		found.action, found.rule = policy.ActionFor(f.in.Job, &workload.Replica{Task: task, Rank: rank, Pod: pod.Name}, pod)
		if found.action == v2alpha1.FailurePolicyRestartReplica {
			found.action = v2alpha1.FailurePolicyRestartJob
		}
		if found.action != v2alpha1.FailurePolicyIgnore {
			failures = append(failures, found)
		}
	}
	return failures
}

// restartJob starts the next attempt, unless the limit is reached.
func (f *Stage) restartJob(failed *corev1.Pod) {
	attempts := f.out.Attempts()
	if limit := f.facts.BackoffLimit(); limit >= 0 && attempts.Restarts >= limit || attempts.Restarts == math.MaxInt32 {
		problems.New(f.out, f.in).Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %s, the limit is %d",
			failed.Name, podstate.FailureCause(failed), english.Plural(int(attempts.Restarts), "restart", ""), limit))
		return
	}
	attempts.Restarts = limits.Sum(attempts.Restarts, 1)
	attempts.CompletedRanks, attempts.ReplicaRestarts = "", nil
	f.out.RecordAttempts(attempts)
	f.out.EnterPhase(v2alpha1.JobRestarting, fmt.Sprintf("pod %s has failed%s, %s", failed.Name, podstate.FailureCause(failed), f.facts.RestartMessage(attempts.Restarts)))
}

// restartReplicas restarts only the failed replicas. The limit bounds the restarts of each replica,
// together with those of the job.
func (f *Stage) restartReplicas(failures []failure) {
	attempts, limit := f.out.Attempts(), f.facts.BackoffLimit()
	for _, failed := range failures {
		if restarts := f.restartsOf(failed.pod); limit >= 0 && limits.Sum(attempts.Restarts, restarts) >= limit {
			problems.New(f.out, f.in).Finish(v2alpha1.JobFailed, fmt.Sprintf("pod %s has failed%s after %s of the job and %d of its own, the limit is %d",
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
				failed.pod.Name, podstate.FailureCause(failed.pod), observed.Ordinal(restarts, max(limit-attempts.Restarts, -1))),
		})
	}
	attempts.ReplicaRestarts = own
	f.out.RecordAttempts(attempts)
}

// restartsOf returns how often the replica of a failed pod was restarted alone.
func (f *Stage) restartsOf(pod *corev1.Pod) int32 {
	return podstate.PlausibleCount(podstate.ReplicaRestarts(pod), f.out.Status().ReplicaRestarts[pod.Name])
}

// suspendWorkers suspends the job once its completed ranks are recorded.
func (f *Stage) suspendWorkers() state.Result {
	return policy.Suspend(f.out, f.in, f.out.Status().CompletedRanks == f.in.Job.Status.CompletedRanks)
}
