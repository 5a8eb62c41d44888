// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package queueing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// GroupName is the API group of Kueue, which is installed if its kind Workload is served.
const (
	GroupName    = "kueue.x-k8s.io"
	WorkloadKind = "Workload"
)

// Labels and annotations of Kueue.
const (
	// LabelQueue names the LocalQueue, on a job and on a pod.
	LabelQueue = "kueue.x-k8s.io/queue-name"
	// LabelPriorityClass names the WorkloadPriorityClass, on a job and on a pod.
	LabelPriorityClass = "kueue.x-k8s.io/priority-class"
	// LabelGroup names the group of a pod.
	LabelGroup = "kueue.x-k8s.io/pod-group-name"
	// AnnotationGroupSize is the number of pods in the group of a pod.
	AnnotationGroupSize = "kueue.x-k8s.io/pod-group-total-count"
	// AnnotationRetriable is "false" on pods whose group finishes once all of its pods
	// have finished, succeeded or failed.
	AnnotationRetriable = "kueue.x-k8s.io/retriable-in-group"
	// LabelManaged is "true" on pods that Kueue manages.
	LabelManaged = "kueue.x-k8s.io/managed"
)

// Gate is the scheduling gate that Kueue removes when it admits a pod.
const Gate = "kueue.x-k8s.io/admission"

// Finalizer is Kueue's finalizer on pods.
const Finalizer = LabelManaged

// terminationTarget is the condition that Kueue writes on a pod that it evicts.
const terminationTarget corev1.PodConditionType = "TerminationTarget"

// PodMeta are the labels and annotations of a pod that Kueue reads. The zero value is that of a pod
// that does not queue.
type PodMeta struct {
	// Queue is the name of the LocalQueue, "" for none.
	Queue string
	// PriorityClass is the name of the WorkloadPriorityClass, "" for none.
	PriorityClass string
	// Group is the name of the pod's group, "" for a pod that queues by itself.
	Group string
	// Size is the number of pods in the group.
	Size int
}

// ForJob returns the metadata of a job's pods, each of which queues by itself. It returns none if
// the job names no queue of Kueue. The queue in the job's label is always a queue of Kueue.
// spec.scheduling.queue is a queue of the scheduler that the job names, if that has queues.
func ForJob(job *v2alpha1.DIJob) PodMeta {
	queue := job.Labels[LabelQueue]
	if scheduling := job.Spec.Scheduling; queue == "" && scheduling != nil && !hasOwnQueues(scheduling.SchedulerName) {
		queue = scheduling.Queue
	}
	if queue == "" {
		return PodMeta{}
	}
	return PodMeta{Queue: queue, PriorityClass: job.Labels[LabelPriorityClass]}
}

// Named returns the queue that a job names: one of Kueue, or of the scheduler that the job names; "" for none.
func Named(job *v2alpha1.DIJob) string {
	if queue := ForJob(job).Queue; queue != "" || job.Spec.Scheduling == nil {
		return queue
	}
	return job.Spec.Scheduling.Queue
}

// hasOwnQueues reports whether a scheduler has queues of its own.
func hasOwnQueues(scheduler string) bool {
	return scheduler == "volcano"
}

// groupNameLength is the maximum length of a label's value.
const groupNameLength = 63

// Start identifies one start of a job. The groups of each start have names of their own, because Kueue neither resizes a
// group nor reopens a finished one.
type Start struct {
	// Job is the name of the job. UID is that of the job or, for a coordinator-led one, of its Membership.
	Job string
	UID types.UID
	// Restarts and Reschedules count the earlier starts.
	Restarts, Reschedules int32
}

// StartOf returns a start of a worker-led job.
func StartOf(job *v2alpha1.DIJob, restarts, reschedules int32) Start {
	return Start{Job: job.Name, UID: job.UID, Restarts: restarts, Reschedules: reschedules}
}

// GroupName returns the name of a group of the start.
func (s Start) GroupName(number int32) string {
	sum := sha256.Sum256([]byte(s.UID))
	suffix := fmt.Sprintf("-%s-%d-%d", hex.EncodeToString(sum[:3]), s.Restarts, s.Reschedules)
	if number > 0 {
		suffix += fmt.Sprintf("-%d", number)
	}
	name := s.Job[:min(len(s.Job), groupNameLength-len(suffix))]
	return strings.TrimRight(name, "-.") + suffix
}

// Grouped returns the metadata of pods of a start that are admitted together. Group 0 is that of the pods
// that it starts with. A single pod needs no group.
func (m PodMeta) Grouped(start Start, number int32, size int) PodMeta {
	if m.Queue == "" || size < 2 {
		return m
	}
	m.Group, m.Size = start.GroupName(number), size
	return m
}

// Number returns the number of the group that pods of a start record; false if it is no group of
// that start.
func (m PodMeta) Number(start Start) (int32, bool) {
	if m.Group == "" || m.Size < 2 {
		return 0, false
	}
	if m.Group == start.GroupName(0) {
		return 0, true
	}
	number, err := strconv.ParseInt(m.Group[strings.LastIndexByte(m.Group, '-')+1:], 10, 32)
	if err != nil || number <= 0 || m.Group != start.GroupName(int32(number)) {
		return 0, false
	}
	return int32(number), true
}

// Ungrouped returns the metadata of a pod that queues in the same queue by itself.
func (m PodMeta) Ungrouped() PodMeta {
	m.Group, m.Size = "", 0
	return m
}

// FromPod returns the metadata of a pod.
func FromPod(pod *corev1.Pod) PodMeta {
	meta := PodMeta{
		Queue: pod.Labels[LabelQueue], PriorityClass: pod.Labels[LabelPriorityClass], Group: pod.Labels[LabelGroup],
	}
	// An annotation that is no number comes from another program.
	if size, err := strconv.Atoi(pod.Annotations[AnnotationGroupSize]); err == nil {
		meta.Size = size
	}
	return meta
}

// Apply writes the metadata to a new pod, and overrides that of its template. Without a queue the
// pod stays unchanged.
func (m PodMeta) Apply(pod *corev1.Pod) {
	if m.Queue == "" {
		return
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[LabelQueue] = m.Queue
	if m.PriorityClass != "" {
		pod.Labels[LabelPriorityClass] = m.PriorityClass
	}
	delete(pod.Labels, LabelGroup)
	delete(pod.Annotations, AnnotationGroupSize)
	delete(pod.Annotations, AnnotationRetriable)
	if m.Group == "" {
		return
	}
	pod.Labels[LabelGroup] = m.Group
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationGroupSize] = strconv.Itoa(m.Size)
	// Otherwise Kueue waits for a replacement of each finished pod. It then keeps the quota and the
	// pods of a job that has failed or is deleted.
	pod.Annotations[AnnotationRetriable] = "false"
}

// IsManaged reports whether Kueue manages a pod.
func IsManaged(pod *corev1.Pod) bool {
	return pod.Labels[LabelManaged] == "true"
}

// IsWaiting reports whether a pod waits for Kueue to admit it.
func IsWaiting(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && isGated(pod)
}

func isGated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == Gate })
}

// IsAbandoned reports whether the pod is still gated although Kueue has finished its pod
// group and will never admit it.
func IsAbandoned(pod *corev1.Pod) bool {
	return IsWaiting(pod) && IsManaged(pod) && !slices.Contains(pod.Finalizers, Finalizer)
}

// Eviction returns Kueue's message about a pod that it evicts, and whether it evicts the pod.
func Eviction(pod *corev1.Pod) (message string, evicted bool) {
	target := conditions.OfPod(pod, terminationTarget)
	if target == nil || target.Status != corev1.ConditionTrue || !IsManaged(pod) {
		return "", false
	}
	return target.Message, true
}

// HasOnlyFinalizer reports whether only Kueue's finalizer keeps a pod. Its node has deleted the
// pod, or the API server if it has no node.
func HasOnlyFinalizer(pod *corev1.Pod) bool {
	isGone := !pod.DeletionTimestamp.IsZero() && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return isGone && slices.Contains(pod.Finalizers, Finalizer)
}

// Release returns a pod without Kueue's finalizer.
func Release(pod *corev1.Pod) *corev1.Pod {
	released := pod.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(finalizer string) bool { return finalizer == Finalizer })
	return released
}
