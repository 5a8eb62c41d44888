// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package problems finds the pods of a job that cannot run, reports them, and keeps the first cause of a failure.
package problems

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// Rules are the rules of pods that cannot run, and of failures that they cause.
type Rules struct {
	out *state.Plan
	in  *state.Input
}

// New returns the rules of the pods of a job.
func New(out *state.Plan, in *state.Input) Rules { return Rules{out: out, in: in} }

// namedProblems is how many pods with a problem a message names.
const namedProblems = 3

// BeforeQuote precedes the last message of a container or the kubelet, in double
// quotes.
const BeforeQuote = `, saying "`

// Finish records the end of the job. A failure keeps its first cause.
func (r Rules) Finish(phase v2alpha1.Phase, message string) {
	now := r.in.Timestamp
	if phase == v2alpha1.JobFailed {
		message = r.keepFirstCause(message)
	}
	r.out.RecordPhase(r.out.Status().Phase, &now)
	r.out.SetPhase(phase, message)
}

// podProblem is a pod and its most serious problem.
type podProblem struct {
	pod     *corev1.Pod
	problem podstate.Problem
}

// ReportProblems sets the conditions that name stalled pods, and those that are not ready. It records an
// event when pods begin to stall or the reason changes.
func (r Rules) ReportProblems() {
	if state.IsFinished(r.out.Status()) {
		r.closeStalled()
		r.out.ClearCondition(v2alpha1.ConditionReplicasNotReady)
		return
	}
	stalled, waiting := r.podProblems()
	if state.IsSuspended(r.in.Job) {
		// The other pods are going.
		stalled = slices.DeleteFunc(stalled, func(each podProblem) bool { return !podstate.Terminating(each.pod) })
		waiting = nil
	}
	if r.reportPods(v2alpha1.ConditionReplicasStalled, stalled) {
		reported := r.out.Condition(v2alpha1.ConditionReplicasStalled)
		r.out.Event(corev1.EventTypeWarning, reported.Reason, reported.Message)
	}
	r.reportPods(v2alpha1.ConditionReplicasNotReady, waiting)
}

// reportPods sets a condition that names pods, or clears it if there are none. It reports whether the
// condition becomes true or its reason changes.
func (r Rules) reportPods(condition string, problems []podProblem) (isNews bool) {
	if len(problems) == 0 {
		r.out.ClearCondition(condition)
		return false
	}
	reason, message := problems[0].problem.Reason, describeProblems(problems)
	isNews = true
	if recorded := r.out.Condition(condition); recorded != nil && recorded.Status == corev1.ConditionTrue {
		isNews = recorded.Reason != reason
		if differOnlyInQuotes(recorded.Message, message) {
			message = recorded.Message
		}
	}
	r.out.RecordCondition(condition, corev1.ConditionTrue, reason, message)
	return isNews
}

// podProblems returns the pods of an unfinished job that are stalled, and the others that are not ready,
// the most serious first. It requeues the job for the next change that only time causes.
func (r Rules) podProblems() (stalled, waiting []podProblem) {
	if state.IsFinished(r.out.Status()) {
		return nil, nil
	}
	for _, pod := range r.in.Pods {
		if r.out.Deleting[pod] {
			continue
		}
		if problem, active := r.problemOf(pod); active {
			if r.in.ForceDeleteAfter > 0 && problem.Reason == v2alpha1.ReasonTerminating && len(pod.Finalizers) > 0 {
				problem.Message += ", which a force deletion does not remove"
			}
			stalled = append(stalled, podProblem{pod, problem})
		} else if wait, waits := r.waitOf(pod); waits {
			waiting = append(waiting, podProblem{pod, wait})
		}
	}
	bySeverity := func(a, b podProblem) int {
		return cmp.Or(cmp.Compare(a.problem.Severity(), b.problem.Severity()), cmp.Compare(a.pod.Name, b.pod.Name))
	}
	slices.SortFunc(stalled, bySeverity)
	slices.SortFunc(waiting, bySeverity)
	return stalled, waiting
}

// waitOf returns what a pod has waited for longer than its grace period. A pod in a queue of Kueue does not
// count: condition Admitted reports it.
func (r Rules) waitOf(pod *corev1.Pod) (podstate.Problem, bool) {
	wait, waits := podstate.Wait(pod)
	if !waits || queueing.IsWaiting(pod) {
		return wait, false
	}
	active, changes := wait.Active(r.in.Now)
	r.out.RequeueAfter(changes)
	return wait, active
}

// problemOf returns the most serious active problem of a pod. It requeues the job for the next
// change that only time causes.
func (r Rules) problemOf(pod *corev1.Pod) (podstate.Problem, bool) {
	worst, found, changes := podstate.ActiveProblem(pod, r.in.Now)
	if changes > 0 {
		r.out.RequeueAfter(changes)
	}
	return worst, found
}

// isCrashing reports whether a pod is in a crash loop, even while it runs between two crashes.
func (r Rules) isCrashing(pod *corev1.Pod) bool {
	problem, active := r.problemOf(pod)
	return active && problem.Reason == v2alpha1.ReasonCrashLoop
}

// describeProblems names the first few pods with their roles and problems.
func describeProblems(problems []podProblem) string {
	var texts []string
	for i := range problems[:min(len(problems), namedProblems)] {
		texts = append(texts, problems[i].describe())
	}
	message := strings.Join(texts, "; ")
	if more := len(problems) - namedProblems; more > 0 {
		message += "; and " + MorePods(more)
	}
	return message
}

func (p *podProblem) describe() string {
	text := fmt.Sprintf("%s (%s): %s", p.pod.Name, names.RoleOrTask(p.pod), p.problem.Message)
	if p.problem.LastMessage != "" {
		text += BeforeQuote + p.problem.LastMessage + `"`
	}
	return text
}

// MorePods rounds large numbers, because many pods start or fail at about the
// same time.
func MorePods(count int) string {
	switch {
	case count == 1:
		return "1 more pod"
	case count < 10:
		return fmt.Sprintf("%d more pods", count)
	}
	return fmt.Sprintf("%d+ more pods", podstate.FloorStep(int32(count)))
}

// differOnlyInQuotes reports whether a recorded message equals another one except for quoted
// messages, and quotes at least as many. A quote that differs at each retry, or that the kubelet
// omits at the next one, is not worth a write.
func differOnlyInQuotes(recorded, message string) bool {
	return withoutQuotes(recorded) == withoutQuotes(message) &&
		strings.Count(recorded, BeforeQuote) >= strings.Count(message, BeforeQuote)
}

// withoutQuotes cuts quoted messages out of a message. They contain no double quotes.
func withoutQuotes(message string) string {
	var kept strings.Builder
	for {
		before, rest, found := strings.Cut(message, BeforeQuote)
		kept.WriteString(before)
		if !found {
			return kept.String()
		}
		_, message, _ = strings.Cut(rest, `"`)
	}
}

// A replica that cannot start lets its peers wait until they give up. The first cause is then the stall, not
// the failures of the peers: these are disruptions while the stall lasts, and a job that fails names the stall.

// Stall is why a replica of a job cannot start.
type Stall struct {
	// Pod is the pod of the replica, "" if it cannot be created.
	Pod string
	// Reason is one of the condition that reports the stall.
	Reason string
	// Cause describes the stall in the past tense.
	Cause string
	// IsOver is set if the stall ended after the last status was written, or may end now.
	IsOver bool
}

// startReasons are the reasons of pods that have not started. Other stalled pods did start.
var startReasons = []string{
	v2alpha1.ReasonContainerStart, v2alpha1.ReasonContainerConfig, v2alpha1.ReasonImagePull, v2alpha1.ReasonPodSetup, v2alpha1.ReasonUnschedulable,
}

// refusedCreations are the reasons of ReplicaFailure for objects that cannot be created.
var refusedCreations = []string{
	v2alpha1.ReasonFailedCreate, v2alpha1.ReasonQuotaExceeded, v2alpha1.ReasonPodSecurityViolation, v2alpha1.ReasonLimitRangeViolation, v2alpha1.ReasonResourcesMissing,
}

// FindStall returns why a replica cannot start, nil if all can. The recorded conditions count as well: a stall
// that ends now lasted until now.
func (r Rules) FindStall() *Stall {
	recorded := recordedStall(&r.in.Job.Status)
	stalled, _ := r.podProblems()
	at := slices.IndexFunc(stalled, func(found podProblem) bool { return slices.Contains(startReasons, found.problem.Reason) })
	if at < 0 {
		if recorded == nil {
			return nil
		}
		isOver := recorded.Type == v2alpha1.ConditionReplicasStalled || r.isCreationDue()
		return &Stall{Reason: recorded.Reason, Cause: fmt.Sprintf("%s for %s: %s", recorded.Reason, r.lasted(recorded), recorded.Message), IsOver: isOver}
	}
	found := &stalled[at]
	text := found.problem.Message
	if found.problem.LastMessage != "" {
		text += BeforeQuote + found.problem.LastMessage + `"`
	}
	return &Stall{
		Pod: found.pod.Name, Reason: found.problem.Reason,
		Cause: fmt.Sprintf("%s (%s) was %s for %s: %s", found.pod.Name, names.RoleOrTask(found.pod), found.problem.Reason, r.lasted(recorded), text),
	}
}

// isCreationDue reports whether an object that could not be created is tried again now. It may succeed, and
// the next status then has no stall.
func (r Rules) isCreationDue() bool {
	isDue := func(until time.Time) bool { return !until.IsZero() && !until.After(r.in.Now) }
	for _, refused := range r.in.Refused {
		if isDue(refused.Until) {
			return true
		}
	}
	for _, taken := range r.in.TakenPods {
		if isDue(taken.Until) {
			return true
		}
	}
	return false
}

// recordedStall returns the condition that reports a stall, nil for none.
func recordedStall(status *v2alpha1.DIJobStatus) *v2alpha1.DIJobCondition {
	for _, each := range []struct {
		kind    string
		reasons []string
	}{
		{v2alpha1.ConditionReplicasStalled, startReasons},
		{v2alpha1.ConditionReplicaFailure, refusedCreations},
		{v2alpha1.ConditionNameConflict, []string{v2alpha1.ConditionNameConflict}},
	} {
		found := conditions.Find(status, each.kind)
		if found != nil && found.Status == corev1.ConditionTrue && slices.Contains(each.reasons, found.Reason) {
			return found
		}
	}
	return nil
}

// lasted describes how long a condition has been true.
func (r Rules) lasted(recorded *v2alpha1.DIJobCondition) string {
	var lasted time.Duration
	if recorded != nil && recorded.LastTransitionTime != nil {
		lasted = max(0, r.in.Now.Sub(recorded.LastTransitionTime.Time))
	}
	return duration.HumanDuration(lasted)
}

// givenUp are the reasons of pods that may have failed because their peers do not answer.
var givenUp = []string{v2alpha1.ReasonError, v2alpha1.ReasonProbeFailed}

// HasGivenUp reports whether a pod failed by an error of its program, as one does whose peers do not answer.
// Other failures, such as one for lack of memory, have nothing to do with peers.
func HasGivenUp(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	return state.HasFailed(job, pod) && slices.Contains(givenUp, state.FailureReason(job, pod))
}

// keepFirstCause puts the stall of a replica before what ended the job, in its last failure and in the
// returned message.
func (r Rules) keepFirstCause(message string) string {
	stall := r.FindStall()
	if stall == nil {
		return message
	}
	end := r.out.Status().LastFailure
	if end == nil {
		end = &v2alpha1.LastFailure{Reason: v2alpha1.ReasonError, Time: &r.in.Timestamp}
	}
	kept := end.DeepCopy()
	if slices.Contains(givenUp, cmp.Or(end.Reason, v2alpha1.ReasonError)) {
		kept.Pod, kept.Reason, kept.ExitCode = cmp.Or(stall.Pod, end.Pod), stall.Reason, nil
	}
	kept.Message = podstate.LastLines(stall.Cause, "then "+message, end.Message)
	r.out.RecordLastFailure(kept)
	return stall.Cause + "; then " + message
}

// closeStalled sets the condition for stalled pods of a job that ends. If the job failed, the message stays
// in the past tense, because it may be the cause.
func (r Rules) closeStalled() {
	const condition = v2alpha1.ConditionReplicasStalled
	recorded := r.out.Condition(condition)
	if recorded == nil || recorded.Status != corev1.ConditionTrue {
		return
	}
	message := recorded.Message
	r.out.ClearCondition(condition)
	if r.out.Status().Phase == v2alpha1.JobFailed {
		recorded.Message = "until the job failed: " + message
	}
}

// IsReady reports whether a pod counts as ready. One in a crash loop does not, while it runs between two crashes.
func (r Rules) IsReady(pod *corev1.Pod) bool {
	return podstate.Ready(pod) && !r.isCrashing(pod)
}
