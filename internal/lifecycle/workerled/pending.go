// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// defaultPendingSeconds is how long a replica must be unschedulable.
	defaultPendingSeconds int32 = 900
	// defaultShrink is the new request, in percent of the last one.
	defaultShrink int32 = 50
	// maxShrinks is how often the requests of a replica shrink.
	maxShrinks int32 = 3
	// minCPU, in thousandths of a core, and minMemory are the least requests by default.
	minCPU    int64 = 100
	minMemory int64 = 128 << 20
)

// shrinkPending records fewer resources for replicas that the scheduler has found no node for. It
// leaves jobs alone that a queue admits or the allocator places, because others decide there.
func (p *Plan) shrinkPending() state.Result {
	rule := pendingRule(p.Job)
	if rule == nil || p.Status().Scaling == nil || p.Job.Spec.Preemptible || p.Queued().Queue != "" || state.IsSuspended(p.Job) {
		return state.Continue
	}
	var texts []string
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.PodNamed[replica.Pod]
		if pod == nil || p.Deleting[pod] || p.isOutdated(replica, pod) || !p.isStuck(pod, rule) {
			continue
		}
		if text := p.shrink(replica, pod, rule); text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) > 0 {
		p.reportAdjusted(v2alpha1.OverrideUnschedulable, texts)
	}
	return state.Continue
}

// isStuck reports whether a pod has been unschedulable for as long as a rule says. A pod that others
// make room for is not, nor one that waits for something else than CPU or memory.
func (p *Plan) isStuck(pod *corev1.Pod, rule *v2alpha1.PendingRule) bool {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	if !podstate.Active(pod) || pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" ||
		scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable {
		return false
	}
	if message := strings.ToLower(scheduled.Message); message != "" && !strings.Contains(message, "cpu") && !strings.Contains(message, "memory") {
		return false
	}
	after := time.Duration(cmp.Or(ptr.Deref(rule.AfterSeconds, 0), defaultPendingSeconds)) * time.Second
	left := scheduled.LastTransitionTime.Add(after).Sub(p.Now)
	if left <= 0 {
		return true
	}
	p.RequeueAfter(min(left, after))
	return false
}

// shrink records fewer resources for a replica, and returns a description; "" if it cannot have fewer.
// Memory that the replica was given after an out-of-memory kill stays.
func (p *Plan) shrink(replica *workload.Replica, pod *corev1.Pod, rule *v2alpha1.PendingRule) string {
	task := names.TaskName(&p.Job.Spec.Tasks[replica.Task])
	attempts := attemptsOf(p.overrides(), task, replica.Index, v2alpha1.OverrideUnschedulable)
	if attempts >= maxShrinks || !mayAdd(p.Status().Scaling.Resources) {
		return ""
	}
	built := workload.ReadResources(pod)
	percent := int64(cmp.Or(ptr.Deref(rule.ShrinkPercent, 0), defaultShrink))
	var next v2alpha1.ReplicaResources
	var changes []string
	if last, isSet := p.requestOf(replica.Task, built, corev1.ResourceCPU); isSet {
		least := minCPU
		if rule.Min.CPU != nil {
			least = rule.Min.CPU.MilliValue()
		}
		if less := max(workload.Scale(last.MilliValue(), percent, 100), least); less < last.MilliValue() {
			next.CPU = resource.NewMilliQuantity(less, resource.DecimalSI)
			changes = append(changes, fmt.Sprintf("CPU %s instead of %s", next.CPU, last.String()))
		}
	}
	if last, isSet := p.requestOf(replica.Task, built, corev1.ResourceMemory); isSet && !p.hasNeeded(task, replica.Index) {
		least := minMemory
		if rule.Min.Memory != nil {
			least = rule.Min.Memory.Value()
		}
		if less := max(workload.Scale(last.Value(), percent, 100), least); less < last.Value() {
			next.Memory = resource.NewQuantity(less, resource.BinarySI)
			changes = append(changes, fmt.Sprintf("memory %s instead of %s", next.Memory, last.String()))
		}
	}
	if len(changes) == 0 {
		return ""
	}
	override := p.widen(v2alpha1.ResourceOverride{
		Task: task, Index: ptr.To(replica.Index), Reason: v2alpha1.OverrideUnschedulable, Attempts: attempts + 1, Resources: next,
	})
	p.adjust(override)
	return fmt.Sprintf("%s requests %s, because pod %s cannot be scheduled (attempt %d of %d)",
		subjectOf(&override), strings.Join(changes, " and "), pod.Name, override.Attempts, maxShrinks)
}

// hasNeeded reports whether an out-of-memory kill showed how much memory a replica, or any of its
// task, needs.
func (in *Input) hasNeeded(task string, index int32) bool {
	winner := workload.WinnerOf(in.overrides(), task, index, corev1.ResourceMemory)
	return winner != nil && winner.Reason == v2alpha1.OverrideOutOfMemory
}
