// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
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

// ShrinkPending records fewer resources for replicas that the scheduler has found no node for. It
// leaves jobs alone that a queue admits or the allocator places, because others decide there.
func (r *Rules) ShrinkPending(replicas iter.Seq[Replica]) {
	rule := pendingRule(r.in.Job)
	if rule == nil || r.in.Job.Spec.Preemptible || r.in.Queued().Queue != "" || state.IsSuspended(r.in.Job) {
		return
	}
	var texts []string
	for replica := range replicas {
		if r.out.Deleting[replica.Pod] || r.IsOutdated(&replica) || !r.isStuck(replica.Pod, rule) {
			continue
		}
		if text := r.shrink(&replica, rule); text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) > 0 {
		r.ReportAdjusted(v2alpha1.OverrideUnschedulable, texts)
	}
}

// isStuck reports whether a pod has been unschedulable for as long as a rule says. A pod that others
// make room for is not, nor one that waits for something else than CPU or memory.
func (r *Rules) isStuck(pod *corev1.Pod, rule *v2alpha1.PendingRule) bool {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	if !podstate.Active(pod) || pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" ||
		scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable {
		return false
	}
	if message := strings.ToLower(scheduled.Message); message != "" && !strings.Contains(message, "cpu") && !strings.Contains(message, "memory") {
		return false
	}
	after := time.Duration(cmp.Or(ptr.Deref(rule.AfterSeconds, 0), defaultPendingSeconds)) * time.Second
	left := scheduled.LastTransitionTime.Add(after).Sub(r.in.Now)
	if left <= 0 {
		return true
	}
	r.out.RequeueAfter(min(left, after))
	return false
}

// shrink records fewer resources for a replica, and returns a description; "" if it cannot have fewer.
// Memory that the replica was given after an out-of-memory kill stays.
func (r *Rules) shrink(replica *Replica, rule *v2alpha1.PendingRule) string {
	id, pod := &replica.ReplicaID, replica.Pod
	attempts := r.attempts(id, v2alpha1.OverrideUnschedulable)
	if attempts >= maxShrinks || !r.mayAdd() {
		return ""
	}
	built := workload.ReadResources(pod)
	percent := int64(cmp.Or(ptr.Deref(rule.ShrinkPercent, 0), defaultShrink))
	var next v2alpha1.ReplicaResources
	var changes []string
	if last, isSet := r.requestOf(*id, built, corev1.ResourceCPU); isSet {
		least := minCPU
		if rule.Min.CPU != nil {
			least = rule.Min.CPU.MilliValue()
		}
		if less := max(workload.Scale(last.MilliValue(), percent, 100), least); less < last.MilliValue() {
			next.CPU = resource.NewMilliQuantity(less, resource.DecimalSI)
			changes = append(changes, fmt.Sprintf("CPU %s instead of %s", next.CPU, last.String()))
		}
	}
	if last, isSet := r.requestOf(*id, built, corev1.ResourceMemory); isSet && !r.hasNeeded(id) {
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
	override := id.Override()
	override.Reason, override.Attempts, override.Resources = v2alpha1.OverrideUnschedulable, attempts+1, next
	override = r.widen(override)
	r.adjust(override)
	return fmt.Sprintf("%s requests %s, because pod %s cannot be scheduled (attempt %d of %d)",
		subjectOf(&override), strings.Join(changes, " and "), pod.Name, override.Attempts, maxShrinks)
}

// hasNeeded reports whether an out-of-memory kill showed how much memory a replica, or any of its
// task, needs.
func (r *Rules) hasNeeded(id *workload.ReplicaID) bool {
	winner := workload.WinnerOf(r.overrides(), *id, corev1.ResourceMemory)
	return winner != nil && winner.Reason == v2alpha1.OverrideOutOfMemory
}
