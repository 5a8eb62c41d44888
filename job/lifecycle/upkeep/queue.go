// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

const (
	// firstWords is how soon Kueue is asked first why pods wait. It sees them only when they exist.
	firstWords = time.Second
	// wordsInterval and maxWordsInterval bound the interval at which it is asked again.
	wordsInterval    = time.Minute
	maxWordsInterval = 10 * time.Minute
)

// ReportQueue sets the condition for the admission by Kueue.
func (u Rules) ReportQueue() {
	const condition = v2alpha1.ConditionAdmitted
	switch {
	case state.IsFinished(u.out.Status()):
		return
	case !u.in.Kueue:
		u.reportNoKueue()
		return
	case state.IsSuspended(u.in.Job):
		u.out.ClearCondition(condition)
		return
	}
	var queue string
	queued, waiting, managed := 0, 0, 0
	for _, pod := range u.out.Current() {
		meta := queueing.FromPod(pod)
		if meta.Queue == "" || podstate.Terminating(pod) || podstate.Finished(pod) {
			continue
		}
		queue = meta.Queue
		queued++
		if queueing.IsWaiting(pod) {
			waiting++
		}
		if queueing.IsManaged(pod) {
			managed++
		}
	}
	switch {
	case queued == 0:
		// Between two attempts the job has no pods for a moment.
	case managed == 0:
		u.warnQueue(v2alpha1.ReasonNotManagedByKueue, fmt.Sprintf("Kueue does not manage the pods for queue %s, so they run without admission: "+
			"its integration \"pod\" is off, or does not cover namespace %s", queue, u.in.Job.Namespace))
	case waiting == queued:
		u.out.RecordCondition(condition, corev1.ConditionFalse, v2alpha1.ReasonWaitingInQueue,
			fmt.Sprintf("the job waits in queue %s for Kueue to admit it", queue)+u.inKueuesWords())
		u.askKueueAgain()
	default:
		message := "Kueue has admitted the job from queue " + queue
		if waiting > 0 {
			message += fmt.Sprintf("; %d of its %d pods %s there", waiting, queued, english.PluralWord(waiting, "waits", "wait")) + u.inKueuesWords()
		}
		u.out.RecordCondition(condition, corev1.ConditionTrue, v2alpha1.ConditionAdmitted, message)
		if waiting > 0 {
			u.askKueueAgain()
		}
	}
}

func (u Rules) inKueuesWords() string {
	if u.in.QueueWords == "" {
		return ""
	}
	return ": " + u.in.QueueWords
}

// askKueueAgain reconciles a job with pods that wait again, because no event of them reports that Kueue says
// something else. The interval doubles while Kueue says the same.
func (u Rules) askKueueAgain() {
	least := wordsInterval
	if u.in.QueueWords == "" {
		least = firstWords
	}
	same := u.in.Now.Sub(u.out.Condition(v2alpha1.ConditionAdmitted).LastUpdateTime.Time)
	u.out.RequeueAfter(min(max(same, least), maxWordsInterval))
}

// reportNoKueue reports that a job names a queue in a cluster without Kueue.
func (u Rules) reportNoKueue() {
	if u.in.NoKueue && !u.in.IsVolcanosQueue() && !state.IsSuspended(u.in.Job) {
		queue := queueing.ForJob(u.in.Job).Queue
		u.warnQueue(v2alpha1.ReasonNoKueue, fmt.Sprintf("the job names queue %s, and Kueue is not installed, so its pods run without admission", queue))
		return
	}
	if found := u.out.Condition(v2alpha1.ConditionAdmitted); found != nil && found.Reason == v2alpha1.ReasonNoKueue {
		u.out.ClearCondition(v2alpha1.ConditionAdmitted)
	}
}

// warnQueue reports that the job runs without admission.
func (u Rules) warnQueue(reason, message string) {
	if u.out.RecordCondition(v2alpha1.ConditionAdmitted, corev1.ConditionFalse, reason, message) {
		u.out.Event(corev1.EventTypeWarning, reason, message)
	}
}
