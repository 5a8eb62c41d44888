// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

const (
	// defaultGrowth is the memory of the next attempt, in percent of the last one.
	defaultGrowth int32 = 200
	// maxGrowths is how often a replica gets more memory.
	maxGrowths int32 = 3
)

// memoryRule returns the memory rule of a job, nil for none.
func memoryRule(job *v2alpha1.DIJob) *v2alpha1.MemoryRule {
	if job.Spec.Autoscale == nil {
		return nil
	}
	return job.Spec.Autoscale.Memory
}

// pendingRule returns the pending rule of a job, nil for none.
func pendingRule(job *v2alpha1.DIJob) *v2alpha1.PendingRule {
	if job.Spec.Autoscale == nil {
		return nil
	}
	return job.Spec.Autoscale.Pending
}

// NeedsNodes reports whether a decision about a job depends on the size of nodes.
func NeedsNodes(observed *state.Observed) bool {
	if memoryRule(observed.Job) == nil {
		return false
	}
	if NeedsGroup(observed) {
		return true
	}
	return slices.ContainsFunc(observed.Pods, WasOutOfMemory)
}

// WasOutOfMemory reports whether a pod is out of memory: it ended, or its kubelet restarted the main
// container since the last resize in place.
func WasOutOfMemory(pod *corev1.Pod) bool {
	end := podstate.LastTermination(pod)
	if end == nil || end.Reason != v2alpha1.ReasonOOMKilled || podstate.Disrupted(pod) || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	resized, err := time.Parse(time.RFC3339, pod.Annotations[names.AnnotationResize])
	return podstate.FailedOrLost(pod) || err != nil || end.FinishedAt.After(resized)
}

// NeedsGroup reports whether a job starts with the memory that another job of its group needed.
func NeedsGroup(observed *state.Observed) bool {
	job := observed.Job
	return memoryRule(job) != nil && job.Spec.Group != "" && job.Status.Scaling == nil && job.Status.Phase == "" && len(observed.Pods) == 0
}

// Inherit records the memory that another job of the group needed, before any pod is created. An
// override of a member means nothing to another job.
func (r *Rules) Inherit() state.Result {
	if !NeedsGroup(&r.in.Observed) {
		return state.Continue
	}
	var texts []string
	for i := range r.in.GroupOverrides {
		override := r.in.GroupOverrides[i].DeepCopy()
		id := workload.ReplicaID{Task: override.Task}
		if override.Reason != v2alpha1.OverrideOutOfMemory || override.Resources.Memory == nil || override.Slot != "" || !r.mayAdd() {
			continue
		}
		last, isSet := r.requestOf(id, v2alpha1.ReplicaResources{}, corev1.ResourceMemory)
		if !isSet {
			continue
		}
		next := r.cappedMemory(id, v2alpha1.ReplicaResources{}, *override.Resources.Memory)
		if next.Cmp(last) <= 0 {
			continue
		}
		override.Resources, override.Attempts = v2alpha1.ReplicaResources{Memory: &next}, 0
		r.adjust(*override)
		texts = append(texts, fmt.Sprintf("%s starts with memory %s instead of %s, because job %s of group %s needed it",
			subjectOf(override), next.String(), last.String(), r.in.GroupJob, r.in.Job.Spec.Group))
	}
	if len(texts) == 0 {
		return state.Continue
	}
	r.ReportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
	return state.Settled
}

// subjectOf names the replica or task of an override.
func subjectOf(override *v2alpha1.ResourceOverride) string {
	switch {
	case override.Slot != "":
		return fmt.Sprintf("member %s of task %s", override.Slot, override.Task)
	case override.Index != nil:
		return fmt.Sprintf("replica %d of task %s", *override.Index, override.Task)
	}
	return "task " + override.Task
}

// HasGrown reports whether the next pod of a replica that was out of memory has more memory.
func (r *Rules) HasGrown(replica *Replica) bool {
	if memoryRule(r.in.Job) == nil {
		return false
	}
	last, isSet := r.requestOf(replica.ReplicaID, workload.ReadResources(replica.Pod), corev1.ResourceMemory)
	next := workload.OverrideOf(r.overrides(), replica.ReplicaID).Memory
	return isSet && next != nil && next.Cmp(last) > 0
}

// Grow records more memory for a replica that was out of memory. It returns a description, or why the
// replica keeps its memory.
func (r *Rules) Grow(replica *Replica) (text, refusal string) {
	attempts, pod := r.attempts(&replica.ReplicaID, v2alpha1.OverrideOutOfMemory), replica.Pod.Name
	built := workload.ReadResources(replica.Pod)
	last, isSet := r.requestOf(replica.ReplicaID, built, corev1.ResourceMemory)
	_, isPodLevel, _ := r.in.Builder.Resources(replica.ReplicaID, built)
	switch {
	case !isSet:
		return "", fmt.Sprintf("pod %s was out of memory, but its template sets no memory to start from", pod)
	case isPodLevel:
		return "", fmt.Sprintf("pod %s was out of memory, but its template sets resources of the whole pod", pod)
	case attempts >= maxGrowths || !r.mayAdd():
		return "", fmt.Sprintf("pod %s was out of memory with %s after %s with more memory", pod, last.String(), english.Plural(int(attempts), "attempt", ""))
	}
	growth := int64(cmp.Or(ptr.Deref(memoryRule(r.in.Job).GrowthPercent, 0), defaultGrowth))
	next := r.cappedMemory(replica.ReplicaID, built, *resource.NewQuantity(workload.Scale(last.Value(), max(growth, 100), 100), resource.BinarySI))
	if next.Cmp(last) <= 0 {
		return "", fmt.Sprintf("pod %s was out of memory with %s, which is its maximum", pod, last.String())
	}
	override := replica.Override()
	override.Reason, override.Attempts, override.Resources.Memory = v2alpha1.OverrideOutOfMemory, attempts+1, &next
	override = r.widen(override)
	r.adjust(override)
	return fmt.Sprintf("%s gets memory %s instead of %s, because pod %s used more than its limit (attempt %d of %d)",
		subjectOf(&override), override.Resources.Memory.String(), last.String(), pod, override.Attempts, maxGrowths), ""
}

// cappedMemory returns a request of memory that keeps what it allows, which is the limit if the
// template has one, within the maximum.
func (r *Rules) cappedMemory(id workload.ReplicaID, built v2alpha1.ReplicaResources, request resource.Quantity) resource.Quantity {
	built.Memory = &request
	resources, _, err := r.in.Builder.Resources(id, built)
	if err != nil {
		return request
	}
	size, hasLimit := resources.Limits[corev1.ResourceMemory]
	if !hasLimit {
		size = request
	}
	most := r.mostMemory()
	if size.Cmp(most) <= 0 {
		return request
	}
	return *resource.NewQuantity(workload.ScaleDown(request.Value(), most.Value(), size.Value()), resource.BinarySI)
}

// mostMemory returns the maximum memory of a replica.
func (r *Rules) mostMemory() resource.Quantity {
	most := state.DefaultMaxMemory()
	if r.in.MaxMemory != nil {
		most = *r.in.MaxMemory
	}
	for _, other := range []*resource.Quantity{memoryRule(r.in.Job).Max, r.in.LargestNode} {
		if other != nil && other.Cmp(most) < 0 {
			most = *other
		}
	}
	return most
}

// HasGrownAny reports whether a job has given any replica more memory.
func HasGrownAny(job *v2alpha1.DIJob) bool {
	return job.Status.Scaling != nil && slices.ContainsFunc(job.Status.Scaling.Resources, func(override v2alpha1.ResourceOverride) bool {
		return override.Reason == v2alpha1.OverrideOutOfMemory && override.Resources.Memory != nil
	})
}
