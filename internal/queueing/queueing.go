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

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// GroupName is the API group of Kueue, whose kind Workload tells that it is installed.
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
	// AnnotationGroupSize is of how many pods the group of a pod is.
	AnnotationGroupSize = "kueue.x-k8s.io/pod-group-total-count"
	// AnnotationRetriable is "false" on pods whose group has finished when all of
	// its pods have ended, however they did.
	AnnotationRetriable = "kueue.x-k8s.io/retriable-in-group"
	// LabelManaged is "true" on pods that Kueue has taken up.
	LabelManaged = "kueue.x-k8s.io/managed"
)

// Gate is the scheduling gate that Kueue takes away when it admits a pod.
const Gate = "kueue.x-k8s.io/admission"

// Finalizer is the one by which Kueue keeps pods.
const Finalizer = LabelManaged

// terminationTarget is the condition that Kueue writes on a pod that it evicts.
const terminationTarget corev1.PodConditionType = "TerminationTarget"

// Marks are what a pod bears for Kueue; the zero Marks are of one that does not
// queue.
type Marks struct {
	// Queue is the name of the LocalQueue, "" for none.
	Queue string
	// PriorityClass is the name of the WorkloadPriorityClass, "" for none.
	PriorityClass string
	// Group is the name of the pod's group, "" for a pod that queues by itself.
	Group string
	// Size is of how many pods the group is.
	Size int
}

// Of returns the marks of a job whose pods queue by themselves; none where the
// job names no queue of Kueue's. The job's label is Kueue's whatever else the job
// says; spec.scheduling.queue may be another scheduler's, which is named then.
func Of(job *v2alpha1.DIJob) Marks {
	queue := job.Labels[LabelQueue]
	if scheduling := job.Spec.Scheduling; queue == "" && scheduling != nil && !hasOwnQueues(scheduling.SchedulerName) {
		queue = scheduling.Queue
	}
	if queue == "" {
		return Marks{}
	}
	return Marks{Queue: queue, PriorityClass: job.Labels[LabelPriorityClass]}
}

// hasOwnQueues reports whether a scheduler has queues, which a job that names the
// scheduler means.
func hasOwnQueues(scheduler string) bool {
	return scheduler == "volcano"
}

// groupNameLength is how long a label's value may be.
const groupNameLength = 63

// In returns the marks of the pods of one start of the job, which are admitted
// together. A single pod needs no group. Kueue takes no other size for a group,
// and none back that has finished, so each start has a group of its own.
func (m Marks) In(job *v2alpha1.DIJob, restarts, reschedules int32, size int) Marks {
	if m.Queue == "" || size < 2 {
		return m
	}
	sum := sha256.Sum256([]byte(job.UID))
	suffix := fmt.Sprintf("-%s-%d-%d", hex.EncodeToString(sum[:3]), restarts, reschedules)
	name := job.Name[:min(len(job.Name), groupNameLength-len(suffix))]
	m.Group, m.Size = strings.TrimRight(name, "-.")+suffix, size
	return m
}

// Alone returns the marks of a pod that queues in the same queue by itself.
func (m Marks) Alone() Marks {
	m.Group, m.Size = "", 0
	return m
}

// On returns the marks that a pod bears.
func On(pod *corev1.Pod) Marks {
	marks := Marks{
		Queue: pod.Labels[LabelQueue], PriorityClass: pod.Labels[LabelPriorityClass], Group: pod.Labels[LabelGroup],
	}
	// What is no number is of a pod that somebody else has marked, and no size.
	if size, err := strconv.Atoi(pod.Annotations[AnnotationGroupSize]); err == nil {
		marks.Size = size
	}
	return marks
}

// Mark lets a pod that is to be created bear the marks. What its template has of
// them makes way; without a queue it stays as it is.
func (m Marks) Mark(pod *corev1.Pod) {
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
	// Kueue would wait for another pod for each that ended else, and keep quota
	// and pods of a job that has failed or is deleted.
	pod.Annotations[AnnotationRetriable] = "false"
}

// IsManaged reports whether Kueue has taken a pod up.
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

// Eviction returns what Kueue says of a pod that it evicts, and whether it does.
func Eviction(pod *corev1.Pod) (message string, evicted bool) {
	target := conditions.OfPod(pod, terminationTarget)
	if target == nil || target.Status != corev1.ConditionTrue || !IsManaged(pod) {
		return "", false
	}
	return target.Message, true
}

// IsHeld reports whether a pod has gone but for Kueue's finalizer: its node, or the
// API server where it has none, has done with it.
func IsHeld(pod *corev1.Pod) bool {
	isGone := !pod.DeletionTimestamp.IsZero() && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return isGone && slices.Contains(pod.Finalizers, Finalizer)
}

// Release returns a pod without Kueue's finalizer.
func Release(pod *corev1.Pod) *corev1.Pod {
	released := pod.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, func(finalizer string) bool { return finalizer == Finalizer })
	return released
}
