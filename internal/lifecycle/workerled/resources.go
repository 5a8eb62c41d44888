// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// The status records which CPU and memory replicas have instead of their template's. New pods are
// built with them. A pod that no node has yet is replaced, because it loses nothing. A pod on a
// node is resized in place where the cluster can. If it cannot, a change by a ScalePlan replaces
// the pod, and more memory after an out-of-memory kill waits until the pod is recreated anyway.
// Fewer resources for the sake of the scheduler never reach a pod that has a node.

// maxOverrides is the maximum number of recorded overrides, as in the schema.
const maxOverrides = 4096

// overrides returns the recorded overrides that pods are built with.
func (in *Input) overrides() []v2alpha1.ResourceOverride {
	if in.Job.Status.Scaling == nil {
		return nil
	}
	return in.Job.Status.Scaling.Resources
}

// replicaOf returns the task and index of a pod's replica; false if the job has no such task.
func (in *Input) replicaOf(pod *corev1.Pod) (workload.Replica, bool) {
	for i := range in.Job.Spec.Tasks {
		if index, isOf := ranks.IndexOf(in.Job.Name, names.TaskName(&in.Job.Spec.Tasks[i]), pod.Name); isOf {
			return workload.Replica{Task: i, Index: index, Pod: pod.Name}, true
		}
	}
	return workload.Replica{}, false
}

// recordedOf returns the recorded resources of a replica.
func (in *Input) recordedOf(replica *workload.Replica) v2alpha1.ReplicaResources {
	return workload.OverrideOf(in.overrides(), names.TaskName(&in.Job.Spec.Tasks[replica.Task]), replica.Index)
}

// isOutdated reports whether a pod was built for other resources than are recorded.
func (in *Input) isOutdated(replica *workload.Replica, pod *corev1.Pod) bool {
	return workload.FormatResources(in.recordedOf(replica)) != workload.FormatResources(workload.ReadResources(pod))
}

// targetOf returns the resources that a pod on a node should have, and whether the pod is replaced
// if it cannot be resized in place.
func (in *Input) targetOf(replica *workload.Replica, pod *corev1.Pod) (target v2alpha1.ReplicaResources, isForced bool) {
	task := names.TaskName(&in.Job.Spec.Tasks[replica.Task])
	built := workload.ReadResources(pod)
	choose := func(name corev1.ResourceName, built *resource.Quantity) *resource.Quantity {
		override := workload.WinnerOf(in.overrides(), task, replica.Index, name)
		if override == nil || override.Reason == v2alpha1.OverrideUnschedulable {
			return built
		}
		wanted := workload.AmountOf(override.Resources, name)
		if override.Reason != v2alpha1.OverrideOutOfMemory {
			isForced = isForced || built == nil || built.Cmp(*wanted) != 0 || isResizing(pod)
			return wanted
		}
		if last, known := in.requestOf(replica.Task, workload.ReadResources(pod), name); known && last.Cmp(*wanted) >= 0 {
			return built
		}
		return wanted
	}
	target.CPU, target.Memory = choose(corev1.ResourceCPU, built.CPU), choose(corev1.ResourceMemory, built.Memory)
	return target, isForced
}

// requestOf returns the request that a task's main container has with an override. A limit without a
// request is the request.
func (in *Input) requestOf(task int, override v2alpha1.ReplicaResources, name corev1.ResourceName) (resource.Quantity, bool) {
	resources, _, err := in.Builder.Resources(task, override)
	if err != nil {
		return resource.Quantity{}, false
	}
	request, isSet := resources.Requests[name]
	if !isSet {
		request, isSet = resources.Limits[name]
	}
	return request, isSet && request.Sign() > 0
}

// whyResourcesRestart describes a change of resources that restarts all replicas, "" if none does.
// A replica that gets more memory restarts the others if its failure does. Replicas that Kueue
// admitted together also queue together for other resources.
func (p *Plan) whyResourcesRestart() string {
	isGrouped := p.isGrouped(p.Status())
	for _, pod := range p.Current() {
		replica, isKnown := p.replicaOf(pod)
		if !isKnown || podstate.Terminating(pod) || replica.Index >= p.counts.ByTask[replica.Task] {
			continue
		}
		action, _ := actionFor(p.Job, &replica, pod)
		switch {
		case p.hasGrown(&replica, pod):
			if isGrouped || action == v2alpha1.FailurePolicyRestartJob {
				return fmt.Sprintf("pod %s was out of memory and gets more; restarting all replicas", pod.Name)
			}
		case isGrouped && podstate.Active(pod) && p.mustChange(&replica, pod):
			return fmt.Sprintf("pod %s gets other resources; restarting all replicas (Kueue admits them together)", pod.Name)
		}
	}
	return ""
}

// mustChange reports whether an active pod is replaced unless it is resized in place.
func (p *Plan) mustChange(replica *workload.Replica, pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return p.isOutdated(replica, pod)
	}
	target, isForced := p.targetOf(replica, pod)
	return isForced && workload.FormatResources(target) != workload.FormatResources(workload.ReadResources(pod))
}

// applyResources gives the pods their recorded resources.
func (p *Plan) applyResources() state.Result {
	if state.IsFinished(p.Status()) || state.IsSuspended(p.Job) || isUnplaced(p.Job) {
		return state.Continue
	}
	var outdated []*workload.Replica
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.PodNamed[replica.Pod]
		if pod == nil || !podstate.Active(pod) || p.Deleting[pod] || pod.Status.Phase == corev1.PodUnknown || p.completed().Has(replica.Rank) {
			continue
		}
		switch {
		case pod.Spec.NodeName != "":
			if p.applyInPlace(replica, pod) {
				outdated = append(outdated, replica)
			}
		case p.isOutdated(replica, pod) && p.mayRelease(pod):
			p.DeletePod(pod)
		}
	}
	p.replaceOne(outdated)
	return state.Continue
}

// applyInPlace resizes a pod in place, or waits for an earlier resize. It reports whether the pod must
// be replaced instead.
func (p *Plan) applyInPlace(replica *workload.Replica, pod *corev1.Pod) (isOutdated bool) {
	target, isForced := p.targetOf(replica, pod)
	wanted := workload.FormatResources(target)
	switch {
	case wanted == workload.FormatResources(workload.ReadResources(pod)):
		return isForced && !p.awaitResize(pod)
	case !p.ResizesPods, pod.Annotations[names.AnnotationResizeRefused] == wanted, queueing.FromPod(pod).Queue != "":
		// Kueue does not see the resources of an admitted pod change.
		return isForced
	}
	resized, err := p.Builder.Resized(pod, replica.Task, target)
	if err != nil {
		p.Invalidate(err.Error())
		return false
	}
	metav1.SetMetaDataAnnotation(&resized.ObjectMeta, names.AnnotationResize, p.Timestamp.UTC().Format(time.RFC3339))
	p.Decision.ResizePods = append(p.Decision.ResizePods, resized)
	p.RequeueAfter(p.resizeTimeout())
	return false
}

// isResizing reports whether a pod was resized in place.
func isResizing(pod *corev1.Pod) bool {
	return pod.Annotations[names.AnnotationResize] != ""
}

// awaitResize reports whether a resize in place is done, or still may be.
func (p *Plan) awaitResize(pod *corev1.Pod) bool {
	if !isResizing(pod) || podstate.IsResized(pod) {
		return true
	}
	if pending := conditions.OfPod(pod, corev1.PodResizePending); pending != nil && pending.Status == corev1.ConditionTrue && pending.Reason == corev1.PodReasonInfeasible {
		return false
	}
	accepted, err := time.Parse(time.RFC3339, pod.Annotations[names.AnnotationResize])
	left := accepted.Add(p.resizeTimeout()).Sub(p.Now)
	if err != nil || left <= 0 {
		return false
	}
	p.RequeueAfter(min(left, p.resizeTimeout()))
	return true
}

// resizeTimeout is how long a pod may take to be resized in place.
func (in *Input) resizeTimeout() time.Duration {
	return cmp.Or(in.ResizeTimeout, state.DefaultResizeTimeout)
}

// replaceOne deletes one of the pods that could not be resized, if every other replica of its task is
// ready. A pod that is not ready comes first.
func (p *Plan) replaceOne(outdated []*workload.Replica) {
	slices.SortStableFunc(outdated, func(a, b *workload.Replica) int {
		return cmp.Compare(readiness(p.PodNamed[a.Pod]), readiness(p.PodNamed[b.Pod]))
	})
	for _, replica := range outdated {
		if pod := p.PodNamed[replica.Pod]; p.othersAreReady(replica) && p.mayRelease(pod) {
			p.DeletePod(pod)
			return
		}
	}
}

func readiness(pod *corev1.Pod) int {
	if podstate.Ready(pod) {
		return 1
	}
	return 0
}

// othersAreReady reports whether the other replicas of a replica's task are ready or have succeeded.
func (p *Plan) othersAreReady(replica *workload.Replica) bool {
	return !slices.ContainsFunc(p.assignment.Replicas, func(other workload.Replica) bool {
		pod := p.PodNamed[other.Pod]
		return other.Task == replica.Task && other.Pod != replica.Pod && !p.completed().Has(other.Rank) &&
			(pod == nil || p.Deleting[pod] || !podstate.Ready(pod))
	})
}

// adjust records an override.
func (p *Plan) adjust(override v2alpha1.ResourceOverride) {
	scaling := p.Status().Scaling
	scaling.Resources = workload.SetOverride(scaling.Resources, override)
	p.Decision.Adjustments = append(p.Decision.Adjustments, override.Reason)
}

// reportAdjusted sets the condition that describes the latest changes of resources.
func (p *Plan) reportAdjusted(reason string, texts []string) {
	message := state.Few(texts, "; ")
	conditions.Set(p.Status(), v2alpha1.ConditionResourcesAdjusted, corev1.ConditionTrue, reason, message, p.Now)
	p.Event(corev1.EventTypeWarning, v2alpha1.ConditionResourcesAdjusted, message)
}

// attemptsOf returns how often a rule has changed the resources of a replica.
func attemptsOf(overrides []v2alpha1.ResourceOverride, task string, index int32, reason string) int32 {
	var attempts int32
	for i := range overrides {
		override := &overrides[i]
		if override.Task == task && override.Reason == reason && (override.Index == nil || *override.Index == index) {
			attempts = max(attempts, override.Attempts)
		}
	}
	return attempts
}

// mayAdd reports whether the list of overrides has room for another one.
func mayAdd(overrides []v2alpha1.ResourceOverride) bool {
	return len(overrides) < maxOverrides
}

// widen makes an override one of the whole task if another replica of the task has one for the same
// reason, so that the rest of the task does not meet the same fate one by one. The task then gets the
// largest memory of its kills, or the fewest resources that the scheduler had no node for. Overrides of
// single replicas for the same reason end.
func (p *Plan) widen(override v2alpha1.ResourceOverride) v2alpha1.ResourceOverride {
	scaling, index := p.Status().Scaling, *override.Index
	isSame := func(other *v2alpha1.ResourceOverride) bool {
		return other.Task == override.Task && other.Reason == override.Reason
	}
	if !slices.ContainsFunc(scaling.Resources, func(other v2alpha1.ResourceOverride) bool {
		return isSame(&other) && (other.Index == nil || *other.Index != index)
	}) {
		return override
	}
	override.Index = nil
	isBeyond := func(a, b *resource.Quantity) bool { return a.Cmp(*b) < 0 }
	if override.Reason == v2alpha1.OverrideOutOfMemory {
		isBeyond = func(a, b *resource.Quantity) bool { return a.Cmp(*b) > 0 }
	}
	for i := range scaling.Resources {
		if other := &scaling.Resources[i]; isSame(other) {
			override.Attempts = max(override.Attempts, other.Attempts)
			override.Resources.CPU = furthest(override.Resources.CPU, other.Resources.CPU, isBeyond)
			override.Resources.Memory = furthest(override.Resources.Memory, other.Resources.Memory, isBeyond)
		}
	}
	kept := make([]v2alpha1.ResourceOverride, 0, len(scaling.Resources))
	for i := range scaling.Resources {
		other := *scaling.Resources[i].DeepCopy()
		if isSame(&other) || replaces(&override, &other, index) {
			other.Resources = without(other.Resources, override.Resources)
		}
		if other.Resources != (v2alpha1.ReplicaResources{}) {
			kept = append(kept, other)
		}
	}
	scaling.Resources = kept
	return override
}

// replaces reports whether an override of a whole task replaces another one: that of the replica that caused
// it, and less memory than an out-of-memory kill showed to be needed.
func replaces(override, other *v2alpha1.ResourceOverride, index int32) bool {
	if other.Task != override.Task || other.Index == nil {
		return false
	}
	isLess := override.Reason == v2alpha1.OverrideOutOfMemory && other.Resources.Memory != nil && other.Resources.Memory.Cmp(*override.Resources.Memory) <= 0
	return *other.Index == index || isLess
}

// furthest returns the amount that is beyond the other; one that is missing adds nothing.
func furthest(amount, other *resource.Quantity, isBeyond func(a, b *resource.Quantity) bool) *resource.Quantity {
	if amount == nil || other == nil || !isBeyond(other, amount) {
		return amount
	}
	return other
}

// without returns the resources without those that others name.
func without(resources, other v2alpha1.ReplicaResources) v2alpha1.ReplicaResources {
	if other.CPU != nil {
		resources.CPU = nil
	}
	if other.Memory != nil {
		resources.Memory = nil
	}
	return resources
}
