// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
)

// hold writes the finalizer by which a job stays until the history has recorded its end, before anything is created for
// the job. A refusal does not stop the job. It returns after how long the job is let go, 0 for never. The
// observation then has the stored job, or none if that was let go.
func (r *Reconciler) hold(ctx context.Context, observed *lifecycle.Observed) (effect, time.Duration) {
	hold := upkeep.FindHold(observed)
	if !hold.Change {
		return effect{}, hold.Left
	}
	job := observed.Job
	done := r.applyOne(ctx, observed, operation{
		verb:   verbUpdate,
		digest: func(client.Object) string { return strings.Join(hold.Finalizers, " ") },
		do: func(ctx context.Context, _ client.Object) effect {
			stored := job.DeepCopy()
			stored.Finalizers = hold.Finalizers
			patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
			if err := client.IgnoreNotFound(r.client.Patch(ctx, stored, patch, controllers.FieldOwner)); err != nil {
				return effect{err: fmt.Errorf("patching the finalizers of job %s/%s: %w", job.Namespace, job.Name, err)}
			}
			r.assumed.add(job, stored, r.clock.Now())
			observed.Job = stored
			return effect{}
		},
	}, job)
	if done.err != nil || job.DeletionTimestamp.IsZero() {
		return done, 0
	}
	// A watch event follows.
	observed.Job = nil
	r.assumed.jobs.Forget(client.ObjectKeyFromObject(job))
	if hold.TimedOut {
		r.metrics.CountNotRecorded()
		r.recordEvent(job, &lifecycle.Event{Type: corev1.EventTypeWarning, Reason: v2alpha1.ReasonNotRecorded, Message: fmt.Sprintf(
			"let go of the deleted job after %s: the history has not recorded its end, and its record may be missing", duration.HumanDuration(observed.History.Timeout),
		)})
	}
	return done, 0
}

// leaveAlone does nothing for a job that is gone, or that the operator does not run, but for the finalizer of the history.
func (r *Reconciler) leaveAlone(ctx context.Context, key types.NamespacedName, job *v2alpha1.DIJob) (ctrl.Result, error) {
	if job == nil || !state.HasHistoryFinalizer(job) {
		r.forget(key)
		return ctrl.Result{}, nil
	}
	observed := lifecycle.Observed{Job: job, Now: r.clock.Now(), History: r.options.History}
	r.states.see(&observed)
	done, left := r.hold(ctx, &observed)
	r.recordWrites(job, effects{done})
	return ctrl.Result{RequeueAfter: state.Sooner(left, r.states.nextWrite(job, observed.Now))}, effects{done}.errors()
}
