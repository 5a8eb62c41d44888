// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy has what the spec of a worker-led job decides about replicas that failed, and about a suspended job.
package policy

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/endings"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

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

const (
	// DefaultBackoffLimit is the maximum number of restarts of a job whose spec sets no limit.
	DefaultBackoffLimit int32 = 3
	// firstRestartBackoff is the minimum duration of an attempt once a job has restarted more often
	// than the default limit allows. It doubles with each further restart.
	firstRestartBackoff = 2 * time.Second
)

// ActionFor returns the action that follows the failure of a replica's pod, and the index of the
// failure policy's rule that decides it. If no rule matches, the job restarts.
func ActionFor(job *v2alpha1.DIJob, replica *workload.Replica, pod *corev1.Pod) (v2alpha1.FailurePolicyAction, int) {
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

// restartBackoff returns the minimum duration of an attempt. With a high limit or none, a job that
// fails at once each time would otherwise keep the cluster busy.
func restartBackoff(restarts int32) time.Duration {
	var backoff time.Duration
	for range min(restarts-DefaultBackoffLimit, 10) {
		backoff = min(max(2*backoff, firstRestartBackoff), disruptions.LongestBackoff)
	}
	return backoff
}

// IsKept reports whether a finished pod stays until the backoff of that many restarts is over. If
// so, it requeues the job for that time.
func IsKept(out *state.Plan, in *state.Input, pod *corev1.Pod, restarts int32) bool {
	backoff := restartBackoff(restarts)
	if backoff == 0 || !podstate.Finished(pod) || podstate.Terminating(pod) {
		return false
	}
	left := in.DelayLeft(pod, pod.CreationTimestamp.Time, backoff)
	if left <= 0 {
		return false
	}
	out.RequeueAfter(left)
	return true
}

// Suspend deletes the pods of a suspended job. Succeeded pods stay until the status records their
// ranks. Otherwise those ranks would run again once the job is resumed.
func Suspend(out *state.Plan, in *state.Input, isRecorded bool) state.Result {
	if state.IsSuspended(in.Job) && !isRecorded {
		out.Unrecorded = map[string]bool{}
		for _, pod := range in.Pods {
			out.Unrecorded[pod.Name] = pod.Status.Phase == corev1.PodSucceeded
		}
	}
	return endings.New(out, in).Suspend()
}
