// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/recorder"
)

// decision is what the autoscaler does about a job.
type decision struct {
	// isPostponed is set if there is nothing to do before the memory's nextAt.
	isPostponed bool
	roles       *roles
	// status is the new status; nil to keep the old one. isResize is set if pools are the new counts.
	status   *v2alpha1.RatioStatus
	isResize bool
	pools    []int32
	// isNew is set if an advice differs from the recorded one.
	isNew bool
	// value, reason and message are those of condition Autoscaling.
	value           corev1.ConditionStatus
	reason, message string
	// next is the state of the rule after the decision.
	next ratio.State
}

// decide returns the decision about a measured job, and what the process remembers of the job after it. The state of
// the rule changes only once the decision is carried out.
func decide(known memory, measured measurement) (memory, decision) {
	known.estimator, known.starts = measured.estimator, measured.starts
	if !measured.isDue {
		return known, decision{isPostponed: true}
	}
	known.generation, known.asked, known.nextAt = measured.job.Generation, measured.asked, measured.now.Add(interval)
	switch {
	case measured.isQueued:
		known.nextAt = measured.now.Add(queryPause)
		return known, decision{isPostponed: true}
	case measured.obstacle != "":
		return known, refusal(measured.obstacle, measured.message, known.state)
	}
	isAdvice := measured.rule.Driver == v2alpha1.RatioByCoordinator || measured.job.Spec.Preemptible
	if isAdvice {
		known = known.afterResize(measured.roles.requested(), measured.now)
	}
	settings := measured.roles.settings(measured.rule)
	size := ratio.Decide(settings, known.state, measured.figures, measured.now)
	known.nextAt = size.NextAt
	if isAdvice {
		// The coordinator or the allocator resizes the job, or not. Only what it does counts as a resize.
		size.Next.GrownAt, size.Next.ShrunkAt = known.state.GrownAt, known.state.ShrunkAt
	}
	decided := decisionOf(measured.roles, settings, measured.figures, &size)
	if isAdvice {
		decided.advise(measured.job)
	}
	return known, decided
}

// afterResize returns the memory after the coordinator or the allocator has set a number of producers.
func (m memory) afterResize(requested int32, now time.Time) memory {
	switch {
	case m.requested >= 0 && requested > m.requested:
		m.state.GrownAt = now
	case m.requested >= 0 && requested < m.requested:
		m.state.ShrunkAt = now
	}
	m.requested = requested
	return m
}

// advise turns a decision into one that writes the status only.
func (d *decision) advise(job *v2alpha1.DIJob) {
	d.isResize = false
	d.isNew = job.Status.Autoscaling == nil || job.Status.Autoscaling.Ratio == nil || !maps.Equal(job.Status.Autoscaling.Ratio.Replicas, d.status.Replicas)
	if d.reason == v2alpha1.ReasonFollowing {
		who := "the coordinator resizes the job, by"
		if job.Spec.Preemptible {
			who = "the allocator gives the job at most"
		}
		d.reason, d.message = v2alpha1.ReasonAdvising, who+" the advice in status.autoscaling.ratio.replicas"
	}
}

// refusal is a decision to leave the size alone.
func refusal(reason, message string, state ratio.State) decision {
	return decision{value: corev1.ConditionFalse, reason: reason, message: recorder.Note(message), next: state}
}

// decisionOf returns the decision about a size that the rule wants.
func decisionOf(roles *roles, settings ratio.Settings, figures ratio.Measurement, size *ratio.Decision) decision {
	decided := decision{
		roles: roles, status: size.Status(settings, figures), isResize: size.Resize, pools: size.Pools, next: size.Next,
		value: corev1.ConditionTrue, reason: v2alpha1.ReasonFollowing, message: "the producers follow the consumer",
	}
	switch {
	case size.Reason == ratio.ReasonNoMeasurement:
		decided.value, decided.reason, decided.message = corev1.ConditionFalse, v2alpha1.ReasonWaitingForReports,
			"no current reports of producers and consumer: capacities, batch and queue are needed"
	case size.Limit != "":
		decided.reason, decided.message = size.Limit, recorder.Note(size.LimitMessage)
	}
	return decided
}
