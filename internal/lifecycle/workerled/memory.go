// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
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
	for _, pod := range observed.Pods {
		if podstate.FailedOrLost(pod) && podstate.OutOfMemory(pod) {
			return true
		}
	}
	return false
}

// NeedsGroup reports whether a job starts with the memory that another job of its group needed.
func NeedsGroup(observed *state.Observed) bool {
	job := observed.Job
	return memoryRule(job) != nil && job.Spec.Group != "" && job.Status.Scaling == nil && job.Status.Phase == "" && len(observed.Pods) == 0
}

// inheritMemory records the memory that another job of the group needed, before any pod is created.
func (p *Plan) inheritMemory() state.Result {
	if !NeedsGroup(&p.Observed) || p.Status().Scaling == nil {
		return state.Continue
	}
	var texts []string
	for i := range p.GroupOverrides {
		override := p.GroupOverrides[i].DeepCopy()
		task := p.taskNamed(override.Task)
		if override.Reason != v2alpha1.OverrideOutOfMemory || override.Resources.Memory == nil || task < 0 || !mayAdd(p.Status().Scaling.Resources) {
			continue
		}
		last, isSet := p.requestOf(task, v2alpha1.ReplicaResources{}, corev1.ResourceMemory)
		if !isSet {
			continue
		}
		next := p.cappedMemory(task, v2alpha1.ReplicaResources{}, *override.Resources.Memory)
		if next.Cmp(last) <= 0 {
			continue
		}
		override.Resources, override.Attempts = v2alpha1.ReplicaResources{Memory: &next}, 0
		p.adjust(*override)
		texts = append(texts, fmt.Sprintf("%s starts with memory %s instead of %s, because job %s of group %s needed it",
			subjectOf(override), next.String(), last.String(), p.GroupJob, p.Job.Spec.Group))
	}
	if len(texts) == 0 {
		return state.Continue
	}
	p.reportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
	return state.Settled
}

// taskNamed returns the index of a task, -1 if there is none.
func (in *Input) taskNamed(name string) int {
	for i := range in.Job.Spec.Tasks {
		if names.TaskName(&in.Job.Spec.Tasks[i]) == name {
			return i
		}
	}
	return -1
}

// subjectOf names the replica or task of an override.
func subjectOf(override *v2alpha1.ResourceOverride) string {
	if override.Index == nil {
		return "task " + override.Task
	}
	return fmt.Sprintf("replica %d of task %s", *override.Index, override.Task)
}

// hasGrown reports whether a pod was out of memory, and its replica's next pod has more memory.
func (in *Input) hasGrown(replica *workload.Replica, pod *corev1.Pod) bool {
	if memoryRule(in.Job) == nil || !state.HasFailed(in.Job, pod) || !podstate.OutOfMemory(pod) {
		return false
	}
	last, isSet := in.requestOf(replica.Task, workload.ReadResources(pod), corev1.ResourceMemory)
	next := in.recordedOf(replica).Memory
	return isSet && next != nil && next.Cmp(last) > 0
}

// growMemory records more memory for replicas whose main container was killed because it used more
// than its limit. This is no failure that counts, up to the maximum of memory and of attempts. A
// policy that fails the job for any of the failures comes first.
func (p *Plan) growMemory() state.Result {
	if memoryRule(p.Job) == nil || p.Status().Scaling == nil {
		return state.Continue
	}
	for _, failed := range p.failures() {
		if failed.action == v2alpha1.FailurePolicyFailJob {
			return state.Continue
		}
	}
	var texts, refusals []string
	for i := range p.assignment.Replicas {
		replica := &p.assignment.Replicas[i]
		pod := p.PodNamed[replica.Pod]
		if pod == nil || !state.HasFailed(p.Job, pod) || !podstate.OutOfMemory(pod) || p.isCounted(pod) || p.hasGrown(replica, pod) {
			continue
		}
		text, refusal := p.grow(replica, pod)
		if refusal != "" {
			refusals = append(refusals, refusal)
			continue
		}
		texts = append(texts, text)
		p.Status().LastFailure = podstate.Failure(pod, p.Timestamp)
		p.RecordFailure(p.Job.Spec.Tasks[replica.Task].Type, pod)
	}
	if len(texts) == 0 {
		p.reportRefusedGrowth(refusals)
		return state.Continue
	}
	p.reportAdjusted(v2alpha1.OverrideOutOfMemory, texts)
	return state.Settled
}

// grow records more memory for a replica. It returns a description, or why the replica keeps its memory.
func (p *Plan) grow(replica *workload.Replica, pod *corev1.Pod) (text, refusal string) {
	task := names.TaskName(&p.Job.Spec.Tasks[replica.Task])
	attempts := attemptsOf(p.overrides(), task, replica.Index, v2alpha1.OverrideOutOfMemory)
	built := workload.ReadResources(pod)
	last, isSet := p.requestOf(replica.Task, built, corev1.ResourceMemory)
	_, isPodLevel, _ := p.Builder.Resources(replica.Task, built)
	switch {
	case !isSet:
		return "", fmt.Sprintf("pod %s was out of memory, but its template sets no memory to start from", pod.Name)
	case isPodLevel:
		return "", fmt.Sprintf("pod %s was out of memory, but its template sets resources of the whole pod", pod.Name)
	case attempts >= maxGrowths || !mayAdd(p.Status().Scaling.Resources):
		return "", fmt.Sprintf("pod %s was out of memory with %s after %d attempts with more memory", pod.Name, last.String(), attempts)
	}
	growth := int64(cmp.Or(ptr.Deref(memoryRule(p.Job).GrowthPercent, 0), defaultGrowth))
	next := p.cappedMemory(replica.Task, built, *resource.NewQuantity(workload.Scale(last.Value(), max(growth, 100), 100), resource.BinarySI))
	if next.Cmp(last) <= 0 {
		return "", fmt.Sprintf("pod %s was out of memory with %s, which is its maximum", pod.Name, last.String())
	}
	override := p.widen(v2alpha1.ResourceOverride{
		Task: task, Index: ptr.To(replica.Index), Reason: v2alpha1.OverrideOutOfMemory, Attempts: attempts + 1,
		Resources: v2alpha1.ReplicaResources{Memory: &next},
	})
	p.adjust(override)
	return fmt.Sprintf("%s gets memory %s instead of %s, because pod %s used more than its limit (attempt %d of %d)",
		subjectOf(&override), override.Resources.Memory.String(), last.String(), pod.Name, override.Attempts, maxGrowths), ""
}

// cappedMemory returns a request of memory that keeps what it allows, which is the limit if the
// template has one, within the maximum.
func (in *Input) cappedMemory(task int, built v2alpha1.ReplicaResources, request resource.Quantity) resource.Quantity {
	built.Memory = &request
	resources, _, err := in.Builder.Resources(task, built)
	if err != nil {
		return request
	}
	size, hasLimit := resources.Limits[corev1.ResourceMemory]
	if !hasLimit {
		size = request
	}
	most := in.mostMemory()
	if size.Cmp(most) <= 0 {
		return request
	}
	return *resource.NewQuantity(workload.ScaleDown(request.Value(), most.Value(), size.Value()), resource.BinarySI)
}

// mostMemory returns the maximum memory of a replica.
func (in *Input) mostMemory() resource.Quantity {
	most := state.DefaultMaxMemory()
	if in.MaxMemory != nil {
		most = *in.MaxMemory
	}
	for _, other := range []*resource.Quantity{memoryRule(in.Job).Max, in.LargestNode} {
		if other != nil && other.Cmp(most) < 0 {
			most = *other
		}
	}
	return most
}

// reportRefusedGrowth records why replicas keep their memory. Their kills count as failures.
func (p *Plan) reportRefusedGrowth(refusals []string) {
	if len(refusals) > 0 && len(p.failures()) > 0 {
		p.Event(corev1.EventTypeWarning, v2alpha1.OverrideOutOfMemory, state.Few(refusals, "; "))
	}
}

// HasGrown reports whether a job has given any replica more memory.
func HasGrown(job *v2alpha1.DIJob) bool {
	return job.Status.Scaling != nil && slices.ContainsFunc(job.Status.Scaling.Resources, func(override v2alpha1.ResourceOverride) bool {
		return override.Reason == v2alpha1.OverrideOutOfMemory && override.Resources.Memory != nil
	})
}
