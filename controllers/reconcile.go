// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// conflictDelay is when a job whose names are taken is looked at again, as
// nobody tells of the other owner's objects.
const conflictDelay = 30 * time.Second

// Reconcile brings one job a step on.
func (r *DIJobReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job, err := find(ctx, r.client, request.NamespacedName, &v2alpha1.DIJob{})
	if err != nil || job == nil || lifecycle.IsLeftAlone(job) {
		return ctrl.Result{}, err
	}
	observed, err := r.observe(ctx, job)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := lifecycle.Decide(observed)
	if decision.DeleteJob {
		return ctrl.Result{}, r.expire(ctx, job)
	}
	done := r.act(ctx, &observed, &decision)
	r.sumUp(&observed, &decision, done)
	committed, commitErr := r.commit(ctx, job, &decision.Status)

	r.tellOfObjects(job, done)
	r.tellOfAdoption(job, done)
	if committed {
		r.tellOfJob(job, &decision)
	}
	if err := errors.Join(done.errors(), commitErr); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
}

// expire deletes a job, and lets the garbage collector delete what it owns.
func (r *DIJobReconciler) expire(ctx context.Context, job *v2alpha1.DIJob) error {
	version := job.ResourceVersion
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &version})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting job %s/%s, whose time is over: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// sumUp writes into the decision what only acting could tell.
func (r *DIJobReconciler) sumUp(observed *lifecycle.Observed, decision *lifecycle.Decision, done effects) {
	if done.errors() != nil {
		decision.Status.ObservedGeneration = observed.Job.Status.ObservedGeneration
	}
	// Each refusal has an event of its own.
	reason, message := done.refusals()
	lifecycle.Complain(&decision.Status, v2alpha1.ConditionReplicaFailure, reason, message, observed.Now)
	message = strings.Join(done.conflicts(), "; ")
	if lifecycle.Complain(&decision.Status, v2alpha1.ConditionNameConflict, v2alpha1.ConditionNameConflict, message, observed.Now) {
		decision.Events = append(decision.Events, lifecycle.Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ConditionNameConflict, Message: message,
		})
	}
	if message != "" && (decision.RequeueAfter == 0 || decision.RequeueAfter > conflictDelay) {
		decision.RequeueAfter = conflictDelay
	}
}

// commit patches what of the status is to become another. The patch holds the
// resource version, so that what was decided on an old status is refused. It
// tells whether anything was written.
func (r *DIJobReconciler) commit(ctx context.Context, job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus) (bool, error) {
	if equality.Semantic.DeepEqual(&job.Status, status) {
		return false, nil
	}
	wanted := job.DeepCopy()
	status.DeepCopyInto(&wanted.Status)
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, wanted, patch); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("patching the status of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return true, nil
}
