// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// holdersOf returns the finalizers by which others hold a job that is being deleted. That of a deletion in
// the foreground is none: the garbage collector deletes the pods.
func holdersOf(job *v2alpha1.DIJob) []string {
	return slices.DeleteFunc(slices.Clone(job.Finalizers), func(finalizer string) bool {
		return finalizer == metav1.FinalizerDeleteDependents
	})
}

// IsHeld reports whether finalizers of others hold a job that is being deleted, perhaps for days. Until they
// are gone, the garbage collector deletes no pod. A deletion that orphans the pods does not count.
func IsHeld(job *v2alpha1.DIJob) bool {
	return !job.DeletionTimestamp.IsZero() && names.OtherManager(&job.Spec) == "" && len(holdersOf(job)) > 0 &&
		!slices.Contains(job.Finalizers, metav1.FinalizerOrphanDependents)
}

// Terminate deletes the objects of a job that is held, by whichever policy, because the garbage collector would
// delete them all. It reports who holds the job.
func (p *Plan) Terminate() Result {
	if !IsHeld(p.in.Job) {
		return Continue
	}
	for _, pod := range p.in.Pods {
		p.DeletePod(pod)
	}
	p.deleteOthers()
	message := "the job is deleted and its pods go, but finalizers hold it: " + Few(holdersOf(p.in.Job), ", ") +
		". The controllers that set them must remove them"
	const condition, reason = v2alpha1.ConditionTerminating, v2alpha1.ReasonHeldByFinalizer
	if p.RecordCondition(condition, corev1.ConditionTrue, reason, message) {
		p.Event(corev1.EventTypeWarning, reason, message)
	}
	if !IsFinished(p.Status()) {
		p.SetPhase(v2alpha1.JobPending, "the job is being deleted")
	}
	return Settled
}
