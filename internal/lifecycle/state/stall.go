// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

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
func (p *Plan) FindStall() *Stall {
	recorded := recordedStall(&p.in.Job.Status)
	stalled, _ := p.podProblems()
	at := slices.IndexFunc(stalled, func(found podProblem) bool { return slices.Contains(startReasons, found.problem.Reason) })
	if at < 0 {
		if recorded == nil {
			return nil
		}
		isOver := recorded.Type == v2alpha1.ConditionReplicasStalled || p.isCreationDue()
		return &Stall{Reason: recorded.Reason, Cause: fmt.Sprintf("%s for %s: %s", recorded.Reason, p.lasted(recorded), recorded.Message), IsOver: isOver}
	}
	found := &stalled[at]
	text := found.problem.Message
	if found.problem.LastMessage != "" {
		text += beforeQuote + found.problem.LastMessage + `"`
	}
	return &Stall{
		Pod: found.pod.Name, Reason: found.problem.Reason,
		Cause: fmt.Sprintf("%s (%s) was %s for %s: %s", found.pod.Name, names.RoleOrTask(found.pod), found.problem.Reason, p.lasted(recorded), text),
	}
}

// isCreationDue reports whether an object that could not be created is tried again now. It may succeed, and
// the next status then has no stall.
func (p *Plan) isCreationDue() bool {
	isDue := func(until time.Time) bool { return !until.IsZero() && !until.After(p.in.Now) }
	for _, refused := range p.in.Refused {
		if isDue(refused.Until) {
			return true
		}
	}
	for _, taken := range p.in.TakenPods {
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
func (p *Plan) lasted(recorded *v2alpha1.DIJobCondition) string {
	var lasted time.Duration
	if recorded != nil && recorded.LastTransitionTime != nil {
		lasted = max(0, p.in.Now.Sub(recorded.LastTransitionTime.Time))
	}
	return duration.HumanDuration(lasted)
}

// givenUp are the reasons of pods that may have failed because their peers do not answer.
var givenUp = []string{v2alpha1.ReasonError, v2alpha1.ReasonProbeFailed}

// HasGivenUp reports whether a pod failed by an error of its program, as one does whose peers do not answer.
// Other failures, such as one for lack of memory, have nothing to do with peers.
func HasGivenUp(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	return HasFailed(job, pod) && slices.Contains(givenUp, FailureReason(job, pod))
}

// keepFirstCause puts the stall of a replica before what ended the job, in its last failure and in the
// returned message.
func (p *Plan) keepFirstCause(message string) string {
	stall := p.FindStall()
	if stall == nil {
		return message
	}
	end := p.Status().LastFailure
	if end == nil {
		end = &v2alpha1.LastFailure{Reason: v2alpha1.ReasonError, Time: &p.in.Timestamp}
	}
	kept := end.DeepCopy()
	if slices.Contains(givenUp, cmp.Or(end.Reason, v2alpha1.ReasonError)) {
		kept.Pod, kept.Reason, kept.ExitCode = cmp.Or(stall.Pod, end.Pod), stall.Reason, nil
	}
	kept.Message = podstate.LastLines(stall.Cause, "then "+message, end.Message)
	p.RecordLastFailure(kept)
	return stall.Cause + "; then " + message
}

// closeStalled sets the condition for stalled pods of a job that ends. If the job failed, the message stays
// in the past tense, because it may be the cause.
func (p *Plan) closeStalled() {
	const condition = v2alpha1.ConditionReplicasStalled
	recorded := p.Condition(condition)
	if recorded == nil || recorded.Status != corev1.ConditionTrue {
		return
	}
	message := recorded.Message
	p.ClearCondition(condition)
	if p.Status().Phase == v2alpha1.JobFailed {
		recorded.Message = "until the job failed: " + message
	}
}
