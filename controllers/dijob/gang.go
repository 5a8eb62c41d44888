// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/lifecycle/workerled"
)

// observeGang adds what there is of the job's gang, where that matters.
func (r *Reconciler) observeGang(ctx context.Context, observed *lifecycle.Observed) error {
	if r.gangs == nil || !workerled.MayBeGang(observed.Job, observed.Pods) {
		return nil
	}
	if err := r.gangs.Observe(ctx, observed, 0); err != nil {
		return err
	}
	if len(observed.PodGroups) > 0 || state.IsFinished(&observed.Job.Status) {
		return nil
	}
	// Which scheduler is told of it is decided now, and one may have been installed.
	return r.gangs.Observe(ctx, observed, workerled.GangRetryInterval/2)
}

// writePodGroup brings the object of the job's gang to what the creation of pods
// rests on. Only what differs is written, as its scheduler writes into it too. What
// is not found may be the kind, as its scheduler was uninstalled.
func (r *Reconciler) writePodGroup(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effect {
	done := r.putPodGroup(ctx, observed, decision)
	if apierrors.IsNotFound(done.err) || meta.IsNoMatchError(done.err) {
		r.gangs.Forget()
	}
	return done
}

func (r *Reconciler) putPodGroup(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effect {
	switch {
	case decision.CreatePodGroup != nil:
		return r.create(ctx, observed.Job, decision.CreatePodGroup, nil)
	case decision.UpdatePodGroup != nil:
		return r.patchPodGroup(ctx, observed, decision.UpdatePodGroup)
	}
	return effect{}
}

func (r *Reconciler) patchPodGroup(ctx context.Context, observed *lifecycle.Observed, wanted *unstructured.Unstructured) effect {
	content := refusal.PatchFrom(func(client.Object) client.Object { return observed.PodGroups[0] })
	return r.write(ctx, observed, verbUpdate, []client.Object{wanted}, content, func(ctx context.Context, _ client.Object) effect {
		if err := r.client.Patch(ctx, wanted, client.MergeFrom(observed.PodGroups[0]), controllers.FieldOwner); err != nil {
			return effect{err: fmt.Errorf("patching %s %s/%s: %w", typeOf(wanted), wanted.GetNamespace(), wanted.GetName(), err)}
		}
		r.assumed.add(observed.Job, wanted, r.now())
		return effect{}
	})[0]
}

// errGoing is what a create ends in where the object of the name is being deleted.
var errGoing = errors.New("is still being deleted")
