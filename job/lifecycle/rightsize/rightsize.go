// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rightsize has the rules of the CPU and memory of a job's replicas: more memory after
// out-of-memory kills, less of both for the scheduler, and the resources of ScalePlans. Worker-led and
// coordinator-led jobs share it. It is pure.
package rightsize

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/workload"
)

// The status records which CPU and memory replicas have instead of their template's. New pods are
// built with them. A pod that no node has yet is replaced, because it loses nothing. A pod on a
// node is resized in place where the cluster can. If it cannot, a change by a ScalePlan replaces
// the pod, and more memory after an out-of-memory kill waits until the pod is recreated anyway.
// Fewer resources for the sake of the scheduler never reach a pod that has a node.

// maxOverrides is the maximum number of recorded overrides, as in the schema.
const maxOverrides = 4096

// Rules change the resources of a job's replicas.
type Rules struct {
	out *state.Plan
	in  *state.Input
}

// New returns the rules of a plan.
func New(plan *state.Plan, in *state.Input) *Rules {
	return &Rules{out: plan, in: in}
}

// Replica is a replica with one of its pods.
type Replica struct {
	workload.ReplicaID
	Pod *corev1.Pod
}

// overrides returns the recorded overrides that pods are built with.
func (r *Rules) overrides() []v2alpha1.ResourceOverride {
	if r.in.Job.Status.Scaling == nil {
		return nil
	}
	return r.in.Job.Status.Scaling.Resources
}

// planned returns the overrides of the planned status.
func (r *Rules) planned() []v2alpha1.ResourceOverride {
	return r.out.Scaling().Resources
}

// IsOutdated reports whether a pod was built for other resources than are recorded.
func (r *Rules) IsOutdated(replica *Replica) bool {
	return differ(workload.OverrideOf(r.overrides(), replica.ReplicaID), workload.ReadResources(replica.Pod))
}

func differ(a, b v2alpha1.ReplicaResources) bool {
	return workload.FormatResources(a) != workload.FormatResources(b)
}

// targetOf returns the resources that a pod on a node should have, and whether the pod is replaced
// if it cannot be resized in place.
func (r *Rules) targetOf(replica *Replica) (target v2alpha1.ReplicaResources, isForced bool) {
	built := workload.ReadResources(replica.Pod)
	choose := func(name corev1.ResourceName, has *resource.Quantity) *resource.Quantity {
		override := workload.WinnerOf(r.overrides(), replica.ReplicaID, name)
		if override == nil || override.Reason == v2alpha1.OverrideUnschedulable {
			return has
		}
		wanted := workload.AmountOf(override.Resources, name)
		if override.Reason != v2alpha1.OverrideOutOfMemory {
			isForced = isForced || has == nil || has.Cmp(*wanted) != 0 || isResizing(replica.Pod)
			return wanted
		}
		if last, known := r.requestOf(replica.ReplicaID, built, name); known && last.Cmp(*wanted) >= 0 {
			return has
		}
		return wanted
	}
	target.CPU, target.Memory = choose(corev1.ResourceCPU, built.CPU), choose(corev1.ResourceMemory, built.Memory)
	return target, isForced
}

// requestOf returns the request that a replica's main container has with an override. A limit without a
// request is the request.
func (r *Rules) requestOf(id workload.ReplicaID, override v2alpha1.ReplicaResources, name corev1.ResourceName) (resource.Quantity, bool) {
	resources, _, err := r.in.Builder.Resources(id, override)
	if err != nil {
		return resource.Quantity{}, false
	}
	request, isSet := resources.Requests[name]
	if !isSet {
		request, isSet = resources.Limits[name]
	}
	return request, isSet && request.Sign() > 0
}

// MustChange reports whether an active pod is replaced unless it is resized in place.
func (r *Rules) MustChange(replica *Replica) bool {
	if replica.Pod.Spec.NodeName == "" {
		return r.IsOutdated(replica)
	}
	target, isForced := r.targetOf(replica)
	return isForced && differ(target, workload.ReadResources(replica.Pod))
}

// Replacement decides which pods may be replaced for other resources.
type Replacement interface {
	// MayRelease reports whether a pod may be deleted now.
	MayRelease(pod *corev1.Pod) bool
	// AreOthersReady reports whether the other replicas of the task are ready, so that a pod that runs
	// may be replaced.
	AreOthersReady(replica *Replica) bool
	// IsForced reports whether a pod that cannot be resized is replaced at once, because it fails without
	// its new resources.
	IsForced(replica *Replica) bool
}

// Apply gives pods their recorded resources.
func (r *Rules) Apply(replicas iter.Seq[Replica], replacement Replacement) {
	var outdated []*Replica
	for replica := range replicas {
		pod := replica.Pod
		if !podstate.Active(pod) || r.out.Deleting[pod] || pod.Status.Phase == corev1.PodUnknown {
			continue
		}
		isForced := replacement.IsForced(&replica)
		switch {
		case pod.Spec.NodeName == "":
			if r.IsOutdated(&replica) && replacement.MayRelease(pod) {
				r.out.DeletePod(pod)
			}
		case !r.applyInPlace(&replica, isForced):
		case isForced:
			r.out.DeletePod(pod)
		default:
			outdated = append(outdated, &replica)
		}
	}
	r.replaceOne(outdated, replacement)
}

// applyInPlace resizes a pod in place, or waits for an earlier resize. It reports whether the pod must
// be replaced instead.
func (r *Rules) applyInPlace(replica *Replica, isForced bool) (isOutdated bool) {
	pod := replica.Pod
	target, isPlanned := r.targetOf(replica)
	isForced = isForced || isPlanned
	wanted := workload.FormatResources(target)
	switch {
	case wanted == workload.FormatResources(workload.ReadResources(pod)):
		return isForced && !r.awaitResize(pod)
	case !r.in.ResizesPods, pod.Annotations[names.AnnotationResizeRefused] == wanted, queueing.FromPod(pod).Queue != "":
		// Kueue does not see the resources of an admitted pod change.
		return isForced
	}
	resized, err := r.in.Builder.Resized(pod, replica.ReplicaID, target)
	if err != nil {
		r.out.Invalidate(err.Error())
		return false
	}
	metav1.SetMetaDataAnnotation(&resized.ObjectMeta, names.AnnotationResize, r.in.Timestamp.UTC().Format(time.RFC3339))
	r.out.Decision.ResizePods = append(r.out.Decision.ResizePods, resized)
	r.out.RequeueAfter(r.resizeTimeout())
	return false
}

// IsResizing reports whether a pod was resized in place and its node has not applied it.
func IsResizing(pod *corev1.Pod) bool {
	return isResizing(pod) && podstate.Active(pod) && !podstate.IsResized(pod)
}

// isResizing reports whether a pod was resized in place.
func isResizing(pod *corev1.Pod) bool {
	return pod.Annotations[names.AnnotationResize] != ""
}

// awaitResize reports whether a resize in place is done, or still may be.
func (r *Rules) awaitResize(pod *corev1.Pod) bool {
	if !isResizing(pod) || podstate.IsResized(pod) {
		return true
	}
	if pending := conditions.OfPod(pod, corev1.PodResizePending); pending != nil && pending.Status == corev1.ConditionTrue && pending.Reason == corev1.PodReasonInfeasible {
		return false
	}
	accepted, err := time.Parse(time.RFC3339, pod.Annotations[names.AnnotationResize])
	left := accepted.Add(r.resizeTimeout()).Sub(r.in.Now)
	if err != nil || left <= 0 {
		return false
	}
	r.out.RequeueAfter(min(left, r.resizeTimeout()))
	return true
}

// resizeTimeout is how long a pod may take to be resized in place.
func (r *Rules) resizeTimeout() time.Duration {
	return cmp.Or(r.in.ResizeTimeout, state.DefaultResizeTimeout)
}

// replaceOne deletes one of the pods that could not be resized, if every other replica of its task is
// ready. A pod that is not ready comes first.
func (r *Rules) replaceOne(outdated []*Replica, replacement Replacement) {
	slices.SortStableFunc(outdated, func(a, b *Replica) int {
		return cmp.Compare(readiness(a.Pod), readiness(b.Pod))
	})
	for _, replica := range outdated {
		if replacement.AreOthersReady(replica) && replacement.MayRelease(replica.Pod) {
			r.out.DeletePod(replica.Pod)
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

// Missing describes what is missing until a replica is ready with its planned resources, "" for nothing.
// The replica may have no pod of the name.
func (r *Rules) Missing(replica *Replica, name string) string {
	pod := replica.Pod
	switch {
	case pod == nil || podstate.Terminating(pod):
		return fmt.Sprintf("pod %s is missing", name)
	case differ(workload.ReadResources(pod), workload.OverrideOf(r.planned(), replica.ReplicaID)):
		return fmt.Sprintf("pod %s does not have its resources yet", name)
	case IsResizing(pod):
		return fmt.Sprintf("pod %s is resized in place", name)
	case !podstate.Ready(pod):
		return fmt.Sprintf("pod %s is not ready", name)
	}
	return ""
}

// adjust records an override.
func (r *Rules) adjust(override v2alpha1.ResourceOverride) {
	r.setResources(workload.SetOverride(r.planned(), override))
	r.out.Decision.Adjustments = append(r.out.Decision.Adjustments, override.Reason)
}

func (r *Rules) setResources(overrides []v2alpha1.ResourceOverride) {
	scaling := r.out.Scaling()
	scaling.Resources = overrides
	r.out.RecordScaling(&scaling)
}

// Forget removes the resources of slots that are no members.
func (r *Rules) Forget(members map[string]bool) {
	r.setResources(slices.DeleteFunc(slices.Clone(r.planned()), func(override v2alpha1.ResourceOverride) bool {
		return override.Slot != "" && !members[override.Slot]
	}))
}

// ReportAdjusted sets the condition that describes the latest changes of resources.
func (r *Rules) ReportAdjusted(reason string, texts []string) {
	message := state.Few(texts, "; ")
	r.out.RecordCondition(v2alpha1.ConditionResourcesAdjusted, corev1.ConditionTrue, reason, message)
	r.out.Event(corev1.EventTypeWarning, v2alpha1.ConditionResourcesAdjusted, message)
}

// attempts returns how often a rule has changed the resources of a replica.
func (r *Rules) attempts(id *workload.ReplicaID, reason string) int32 {
	var attempts int32
	for i, overrides := 0, r.overrides(); i < len(overrides); i++ {
		if overrides[i].Reason == reason && id.Covers(&overrides[i]) {
			attempts = max(attempts, overrides[i].Attempts)
		}
	}
	return attempts
}

// mayAdd reports whether the list of overrides has room for another one.
func (r *Rules) mayAdd() bool {
	return len(r.planned()) < maxOverrides
}

// widen makes an override one of the whole task if another replica of the task has one for the same
// reason, so that the rest of the task does not meet the same fate one by one. The task then gets the
// largest memory of its kills, or the fewest resources that the scheduler had no node for. Overrides of
// single replicas for the same reason end.
func (r *Rules) widen(override v2alpha1.ResourceOverride) v2alpha1.ResourceOverride {
	overrides, own := r.planned(), override
	isSame := func(other *v2alpha1.ResourceOverride) bool {
		return other.Task == override.Task && other.Reason == override.Reason
	}
	if !slices.ContainsFunc(overrides, func(other v2alpha1.ResourceOverride) bool {
		return isSame(&other) && !workload.IsOfSame(&other, &own)
	}) {
		return override
	}
	override.Index, override.Slot = nil, ""
	beyond := -1
	if override.Reason == v2alpha1.OverrideOutOfMemory {
		beyond = 1
	}
	for i := range overrides {
		if other := &overrides[i]; isSame(other) {
			override.Attempts = max(override.Attempts, other.Attempts)
			override.Resources.CPU = furthest(override.Resources.CPU, other.Resources.CPU, beyond)
			override.Resources.Memory = furthest(override.Resources.Memory, other.Resources.Memory, beyond)
		}
	}
	kept := make([]v2alpha1.ResourceOverride, 0, len(overrides))
	for i := range overrides {
		other := *overrides[i].DeepCopy()
		if isSame(&other) || replaces(&override, &other, &own) {
			other.Resources = without(other.Resources, override.Resources)
		}
		if other.Resources != (v2alpha1.ReplicaResources{}) {
			kept = append(kept, other)
		}
	}
	r.setResources(kept)
	return override
}

// replaces reports whether an override of a whole task replaces another one: that of the replica that caused
// it, and less memory than an out-of-memory kill showed to be needed.
func replaces(override, other, own *v2alpha1.ResourceOverride) bool {
	if other.Task != override.Task || workload.IsWhole(other) {
		return false
	}
	isLess := override.Reason == v2alpha1.OverrideOutOfMemory && other.Resources.Memory != nil && other.Resources.Memory.Cmp(*override.Resources.Memory) <= 0
	return workload.IsOfSame(other, own) || isLess
}

// furthest returns the larger amount, or the smaller one if beyond is -1; one that is missing adds nothing.
func furthest(amount, other *resource.Quantity, beyond int) *resource.Quantity {
	if amount == nil || other == nil || other.Cmp(*amount) != beyond {
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
