// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
)

// namedProblems is how many pods with a problem a message names.
const namedProblems = 3

// beforeQuote precedes the last message of a container or the kubelet, in double
// quotes.
const beforeQuote = `, saying "`

// podProblem is a pod and its most serious problem.
type podProblem struct {
	pod     *corev1.Pod
	problem podstate.Problem
}

// ReportProblems sets the conditions that name stalled pods, and those that are not ready. It records an
// event when pods begin to stall or the reason changes.
func (p *Plan) ReportProblems() {
	if IsFinished(p.Status()) {
		p.closeStalled()
		p.ClearCondition(v2alpha1.ConditionReplicasNotReady)
		return
	}
	stalled, waiting := p.podProblems()
	if IsSuspended(p.in.Job) {
		// The other pods are going.
		stalled = slices.DeleteFunc(stalled, func(each podProblem) bool { return !podstate.Terminating(each.pod) })
		waiting = nil
	}
	if p.reportPods(v2alpha1.ConditionReplicasStalled, stalled) {
		reported := p.Condition(v2alpha1.ConditionReplicasStalled)
		p.Event(corev1.EventTypeWarning, reported.Reason, reported.Message)
	}
	p.reportPods(v2alpha1.ConditionReplicasNotReady, waiting)
}

// reportPods sets a condition that names pods, or clears it if there are none. It reports whether the
// condition becomes true or its reason changes.
func (p *Plan) reportPods(condition string, problems []podProblem) (isNews bool) {
	if len(problems) == 0 {
		p.ClearCondition(condition)
		return false
	}
	reason, message := problems[0].problem.Reason, describeProblems(problems)
	isNews = true
	if recorded := p.Condition(condition); recorded != nil && recorded.Status == corev1.ConditionTrue {
		isNews = recorded.Reason != reason
		if differOnlyInQuotes(recorded.Message, message) {
			message = recorded.Message
		}
	}
	p.RecordCondition(condition, corev1.ConditionTrue, reason, message)
	return isNews
}

// podProblems returns the pods of an unfinished job that are stalled, and the others that are not ready,
// the most serious first. It requeues the job for the next change that only time causes.
func (p *Plan) podProblems() (stalled, waiting []podProblem) {
	if IsFinished(p.Status()) {
		return nil, nil
	}
	for _, pod := range p.in.Pods {
		if p.Deleting[pod] {
			continue
		}
		if problem, active := p.problemOf(pod); active {
			if p.in.ForceDeleteAfter > 0 && problem.Reason == v2alpha1.ReasonTerminating && len(pod.Finalizers) > 0 {
				problem.Message += ", which a force deletion does not remove"
			}
			stalled = append(stalled, podProblem{pod, problem})
		} else if wait, waits := p.waitOf(pod); waits {
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
func (p *Plan) waitOf(pod *corev1.Pod) (podstate.Problem, bool) {
	wait, waits := podstate.Wait(pod)
	if !waits || queueing.IsWaiting(pod) {
		return wait, false
	}
	active, changes := wait.Active(p.in.Now)
	p.RequeueAfter(changes)
	return wait, active
}

// problemOf returns the most serious active problem of a pod. It requeues the job for the next
// change that only time causes.
func (p *Plan) problemOf(pod *corev1.Pod) (podstate.Problem, bool) {
	worst, found, changes := podstate.ActiveProblem(pod, p.in.Now)
	if changes > 0 {
		p.RequeueAfter(changes)
	}
	return worst, found
}

// isCrashing reports whether a pod is in a crash loop, even while it runs between two crashes.
func (p *Plan) isCrashing(pod *corev1.Pod) bool {
	problem, active := p.problemOf(pod)
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
		message += "; and " + morePods(more)
	}
	return message
}

func (p *podProblem) describe() string {
	text := fmt.Sprintf("%s (%s): %s", p.pod.Name, names.RoleOrTask(p.pod), p.problem.Message)
	if p.problem.LastMessage != "" {
		text += beforeQuote + p.problem.LastMessage + `"`
	}
	return text
}

// morePods rounds large numbers, because many pods start or fail at about the
// same time.
func morePods(count int) string {
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
		strings.Count(recorded, beforeQuote) >= strings.Count(message, beforeQuote)
}

// withoutQuotes cuts quoted messages out of a message. They contain no double quotes.
func withoutQuotes(message string) string {
	var kept strings.Builder
	for {
		before, rest, found := strings.Cut(message, beforeQuote)
		kept.WriteString(before)
		if !found {
			return kept.String()
		}
		_, message, _ = strings.Cut(rest, `"`)
	}
}
