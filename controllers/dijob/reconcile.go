// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// Reconcile observes one job, decides, acts, concludes, commits the status and emits the changes.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job, err := controllers.Find(ctx, r.client, request.NamespacedName, &v2alpha1.DIJob{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if job == nil || state.IsLeftAlone(job) && !state.IsHeld(job) {
		return r.leaveAlone(ctx, request.NamespacedName, job)
	}
	job = assume.Latest(&r.assumed.jobs, job)
	observed, err := r.observe(ctx, job)
	if err == nil {
		r.states.see(&observed)
		err = r.observeNodes(ctx, &observed)
	}
	if err == nil {
		err = r.observeProbeKills(ctx, &observed)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	held, left := r.hold(ctx, &observed)
	if held.err == nil && observed.Job == nil {
		return ctrl.Result{}, nil
	}
	job = observed.Job
	observed.Refused = r.states.refused(&observed)
	decision := lifecycle.Decide(observed)
	if decision.DeleteJob && held.err == nil {
		return r.expire(ctx, &observed)
	}
	leftBehind, next := r.deleteLeftBehind(ctx, &observed)
	decision.Requeue(left)
	decision.Requeue(next)
	done := slices.Concat(effects{held}, leftBehind, r.act(ctx, &observed, &decision))
	r.states.recordRefusals(&observed, done)
	r.states.recordConflicts(&observed, done.taken())
	outcome := lifecycle.Conclude(&observed, &decision, r.summarize(&observed, &decision, done))
	committed, err := r.commit(ctx, job, &outcome.Status)
	switch {
	case committed || err != nil:
	case decision.Counts != nil:
		err = r.writeCounts(ctx, job, decision.Counts)
	default:
		err = r.writeElastic(ctx, job, decision.Elastic)
	}

	r.emit(ctx, &observed, &decision, &outcome, done, committed)
	if err := errors.Join(done.errors(), err); err != nil {
		r.states.setDue(request.NamespacedName, outcome.RequeueAfter, r.clock.Now())
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: outcome.RequeueAfter}, nil
}

// forget drops what the process knows of a job.
func (r *Reconciler) forget(job types.NamespacedName) {
	r.states.forget(job)
	r.assumed.forget(job)
}

// summarize returns the results of acting on a decision.
func (r *Reconciler) summarize(observed *lifecycle.Observed, decision *lifecycle.Decision, done effects) *lifecycle.Effects {
	effects := &lifecycle.Effects{
		Failed: done.errors() != nil, Waiting: done.wait(), Created: done.created(),
		Taken: len(done.taken()) > 0, Conflicts: done.conflicts(),
		RetryAfter: r.states.nextWrite(observed.Job, observed.Now), OthersWait: r.othersWait(),
	}
	effects.RejectedReason, effects.Rejected = done.refusals(observed.Job, decision.Lacking)
	fault := done.fault()
	if r.states.isRepeated(observed, fault) && effects.Rejected == "" {
		effects.RejectedReason, effects.Rejected = fault.reason, fault.describeFault()
	}
	if r.assumed.owned.Has(client.ObjectKeyFromObject(observed.Job)) {
		effects.AssumedFor = assume.TTL
	}
	return effects
}

// emit records the Events, metrics, log lines and trace of a reconcile. Those about the status require
// that the status was committed.
func (r *Reconciler) emit(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision, outcome *lifecycle.Outcome, done effects, committed bool) {
	r.recordWrites(observed.Job, done)
	r.recordAdoption(observed, done)
	r.recordLeftBehind(observed.Job, done)
	if committed {
		r.recordEvents(observed.Job, outcome.Events)
		r.metrics.Observe(observed.Job, outcome, observed.Now)
		logChanges(ctx, observed.Job, outcome)
	}
	logReconcile(ctx, observed, decision, outcome, committed)
	traceReconcile(ctx, observed, outcome, committed)
}

// expire deletes a job, unless the API server recently refused the deletion.
func (r *Reconciler) expire(ctx context.Context, observed *lifecycle.Observed) (ctrl.Result, error) {
	expiry := operation{verb: verbDelete, digest: refusal.NoContent, do: func(ctx context.Context, _ client.Object) effect {
		if err := r.deleteJob(ctx, observed.Job); err != nil {
			return effect{object: observed.Job, reason: v2alpha1.ReasonFailedDelete, err: err}
		}
		return effect{}
	}}
	done := effects{r.applyOne(ctx, observed, expiry, observed.Job)}
	r.recordWrites(observed.Job, done)
	return ctrl.Result{RequeueAfter: r.states.nextWrite(observed.Job, observed.Now)}, done.errors()
}

// deleteJob deletes a job. The garbage collector deletes the objects that it owns.
func (r *Reconciler) deleteJob(ctx context.Context, job *v2alpha1.DIJob) error {
	version := job.ResourceVersion
	err := r.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.Preconditions{UID: &job.UID, ResourceVersion: &version})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting job %s/%s, whose TTL has expired: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// commit patches the status if it changed. It reports whether it wrote the status. The patch includes the
// resource version, so the API server refuses a decision on a stale status.
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
	r.assumed.add(job, wanted, r.clock.Now())
	r.states.recordStatusWrite(client.ObjectKeyFromObject(job), r.clock.Now())
	return true, nil
}
