// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/assume"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// conflictDelay is when a job whose names are taken is looked at again, as
// nobody tells of the other owner's objects.
const conflictDelay = 30 * time.Second

// nextPart is when a job is looked at again of which a part was created. Jobs
// that wait come first.
const nextPart = time.Millisecond

// Reconcile brings one job a step on.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job, err := controllers.Find(ctx, r.client, request.NamespacedName, &v2alpha1.DIJob{})
	if err == nil && (job == nil || lifecycle.IsLeftAlone(job)) {
		r.states.forget(request.NamespacedName)
		r.assumed.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	job = assume.Latest(&r.assumed.jobs, job)
	observed, err := r.observe(ctx, job)
	if err == nil {
		err = r.observeNodes(ctx, &observed)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	job = observed.Job
	observed.Refused = r.states.refused(&observed)
	decision := lifecycle.Decide(observed)
	if decision.DeleteJob {
		return r.expire(ctx, &observed)
	}
	decision.PaceMembership(&observed)
	done := r.act(ctx, &observed, &decision)
	r.states.recordRefusals(&observed, done)
	r.states.recordConflicts(&observed, done.taken())
	r.sumUp(&observed, &decision, done)
	decision.PaceStatus(&observed)
	if r.othersWait() && done.errors() == nil && len(done.taken()) == 0 {
		decision.AwaitCreated(&observed)
	}
	committed, commitErr := r.commit(ctx, job, &decision.Status)

	r.recordWrites(job, done)
	r.recordAdoption(&observed, done)
	if committed {
		r.recordEvents(job, &decision)
		r.metrics.observe(job, &decision, observed.Now)
		logChanges(ctx, job, &decision)
	}
	if !committed && commitErr == nil {
		commitErr = r.writeElastic(ctx, job, decision.Elastic)
	}
	next := r.nextLook(job, &decision, done)
	logPass(ctx, &observed, &decision, committed, next)
	tracePass(ctx, &observed, &decision, committed)
	if err := errors.Join(done.errors(), commitErr); err != nil {
		r.states.setDue(request.NamespacedName, next, r.now())
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// nextLook returns when to look at a job again though nothing changes; 0 for never.
func (r *Reconciler) nextLook(job *v2alpha1.DIJob, decision *lifecycle.Decision, done effects) time.Duration {
	switch {
	case decision.More && done.created():
		return nextPart
	case r.assumed.owned.Has(client.ObjectKeyFromObject(job)) && (decision.RequeueAfter == 0 || decision.RequeueAfter > assume.TTL):
		return assume.TTL
	}
	return decision.RequeueAfter
}

// expire deletes a job, unless the API server refused that a short while ago.
func (r *Reconciler) expire(ctx context.Context, observed *lifecycle.Observed) (ctrl.Result, error) {
	done := r.write(ctx, observed, verbDelete, []client.Object{observed.Job}, noContent, func(ctx context.Context, _ client.Object) effect {
		if err := r.deleteJob(ctx, observed.Job); err != nil {
			return effect{object: observed.Job, reason: v2alpha1.ReasonFailedDelete, err: err}
		}
		return effect{}
	})
	r.recordWrites(observed.Job, done)
	return ctrl.Result{RequeueAfter: r.states.nextWrite(observed.Job, observed.Now)}, done.errors()
}

// deleteJob deletes a job, and lets the garbage collector delete what it owns.
func (r *Reconciler) deleteJob(ctx context.Context, job *v2alpha1.DIJob) error {
	version := job.ResourceVersion
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &version})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting job %s/%s, whose time is over: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// sumUp writes into the decision what only acting could tell.
func (r *Reconciler) sumUp(observed *lifecycle.Observed, decision *lifecycle.Decision, done effects) {
	heldBack := decision.HeldBack || done.wait()
	if done.errors() != nil || heldBack {
		decision.Status.ObservedGeneration = observed.Job.Status.ObservedGeneration
	}
	// Each refusal has an event of its own.
	reason, message := done.refusals(observed.Job, decision.Lacking)
	if message != "" || !heldBack {
		conditions.Report(&decision.Status, v2alpha1.ConditionReplicaFailure, reason, message, observed.Now)
	}
	message = conflictMessage(observed, decision, done.taken())
	if conditions.Report(&decision.Status, v2alpha1.ConditionNameConflict, v2alpha1.ConditionNameConflict, message, observed.Now) {
		decision.Events = append(decision.Events, lifecycle.Event{
			Type: corev1.EventTypeWarning, Reason: v2alpha1.ConditionNameConflict, Message: message,
		})
	}
	if message != "" {
		lookAgain(decision, conflictDelay)
	}
	lookAgain(decision, r.states.nextWrite(observed.Job, observed.Now))
}

// lookAgain has a job looked at again after a time, if no sooner anyway; 0 changes nothing.
func lookAgain(decision *lifecycle.Decision, after time.Duration) {
	if after > 0 && (decision.RequeueAfter == 0 || decision.RequeueAfter > after) {
		decision.RequeueAfter = after
	}
}

// commit patches what of the status is to become another. The patch holds the
// resource version, so that what was decided on an old status is refused. It
// reports whether anything was written.
func (r *Reconciler) commit(ctx context.Context, job *v2alpha1.DIJob, status *v2alpha1.DIJobStatus) (bool, error) {
	if equality.Semantic.DeepEqual(&job.Status, status) {
		return false, nil
	}
	wanted := job.DeepCopy()
	status.DeepCopyInto(&wanted.Status)
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.client.Status().Patch(ctx, wanted, patch, controllers.FieldOwner); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("patching the status of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	r.assumed.add(job, wanted, r.now())
	r.states.recordStatusWrite(client.ObjectKeyFromObject(job), r.now())
	return true, nil
}
