// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
)

// ActiveSince returns since when a job that is not suspended has been active: since its admission
// from the queue, else since its resumption, which may be now, else since its creation.
func ActiveSince(job *v2alpha1.DIJob, now time.Time) time.Time {
	return activeSince(job, job.CreationTimestamp.Time, now)
}

func activeSince(job *v2alpha1.DIJob, created, now time.Time) time.Time {
	since := resumedOrMade(job, created, now)
	admitted := conditions.Find(&job.Status, v2alpha1.ConditionAdmitted)
	switch {
	case admitted == nil || admitted.LastTransitionTime == nil:
		return since
	case admitted.Status == corev1.ConditionFalse && admitted.Reason == v2alpha1.ReasonWaitingInQueue:
		return now.Truncate(time.Second)
	case admitted.Status == corev1.ConditionTrue && admitted.LastTransitionTime.After(since):
		return admitted.LastTransitionTime.Time
	}
	return since
}

func resumedOrMade(job *v2alpha1.DIJob, created, now time.Time) time.Time {
	suspended := conditions.Find(&job.Status, v2alpha1.ConditionSuspended)
	switch {
	case suspended == nil:
		return created
	case suspended.Status == corev1.ConditionTrue || suspended.LastTransitionTime == nil:
		return now.Truncate(time.Second)
	}
	return suspended.LastTransitionTime.Time
}

// IsUnplaced reports whether a job waits for the allocator to place it.
func IsUnplaced(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && len(job.Status.Allocation) == 0
}

// IsSuspended reports whether a job is suspended by its spec.
func IsSuspended(job *v2alpha1.DIJob) bool {
	return ptr.Deref(job.Spec.Suspend, false)
}

// CleanPodPolicy returns which pods of a finished job are deleted.
func (in *Input) CleanPodPolicy() v2alpha1.CleanPodPolicy {
	return cmp.Or(in.Job.Spec.CleanPodPolicy, v2alpha1.CleanPodPolicyRunning)
}

// HoldersOf returns the finalizers that hold a job that is being deleted. That of a deletion in
// the foreground is none: the garbage collector deletes the pods.
func HoldersOf(job *v2alpha1.DIJob) []string {
	return slices.DeleteFunc(slices.Clone(job.Finalizers), func(finalizer string) bool {
		return finalizer == metav1.FinalizerDeleteDependents
	})
}

// IsHeld reports whether finalizers of others, or of the history, hold a job that is being deleted, perhaps for days. Until they
// are gone, the garbage collector deletes no pod. A deletion that orphans the pods does not count.
func IsHeld(job *v2alpha1.DIJob) bool {
	return !job.DeletionTimestamp.IsZero() && names.OtherManager(&job.Spec) == "" && len(HoldersOf(job)) > 0 &&
		!slices.Contains(job.Finalizers, metav1.FinalizerOrphanDependents)
}

// HasHistoryFinalizer reports whether a job stays until the history has recorded its end.
func HasHistoryFinalizer(job *v2alpha1.DIJob) bool {
	return slices.Contains(job.Finalizers, names.FinalizerHistory)
}

// WaitsForHistory reports whether only the history holds a job that is being deleted.
func WaitsForHistory(job *v2alpha1.DIJob) bool {
	return IsHeld(job) && slices.Equal(HoldersOf(job), []string{names.FinalizerHistory})
}
