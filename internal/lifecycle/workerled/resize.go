// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	"opendilab.org/di-orchestrator/internal/lifecycle/state"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// reportResizes records one event for all tasks that were resized.
func (p *Plan) reportResizes() {
	texts := make([]string, len(p.resizes))
	for i, resize := range p.resizes {
		texts[i] = resize.Describe(p.Job, &p.counts)
	}
	if len(texts) == 0 {
		return
	}
	message := state.Few(texts, "; ")
	p.Event(corev1.EventTypeNormal, v2alpha1.ReasonResized, message)
	if len(p.Pods) > 0 && p.whyRestarted(p.Status()) == "" && !state.IsSuspended(p.Job) {
		conditions.Set(p.Status(), v2alpha1.ConditionResizing, corev1.ConditionTrue, v2alpha1.ReasonResized, message, p.Now)
	}
}

// endResize clears the condition of a resize once exactly the desired pods exist and are
// ready.
func (p *Plan) endResize() {
	const condition = v2alpha1.ConditionResizing
	if conditions.IsTrue(p.Status(), condition) && (state.IsFinished(p.Status()) || state.IsSuspended(p.Job) || p.hasNoExcess() && p.isAllReady()) {
		conditions.Clear(p.Status(), condition, p.Now)
	}
}

// hasNoExcess reports whether every pod belongs to a desired replica.
func (p *Plan) hasNoExcess() bool {
	desired := make(map[string]bool, len(p.assignment.Replicas))
	for i := range p.assignment.Replicas {
		desired[p.assignment.Replicas[i].Pod] = true
	}
	return !slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool { return !desired[pod.Name] })
}
