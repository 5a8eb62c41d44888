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
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/gangs"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// observeGang adds the gang schedulers and the job's PodGroups if it may be a gang.
func (r *Reconciler) observeGang(ctx context.Context, observed *lifecycle.Observed) error {
	if r.gangs == nil || !gangs.MayExist(observed.Job, observed.Pods) {
		return nil
	}
	if err := r.gangs.Observe(ctx, observed, 0); err != nil {
		return err
	}
	if len(observed.PodGroups) > 0 || state.IsFinished(&observed.Job.Status) {
		return nil
	}
	// This reconcile chooses the scheduler, and one may have been installed since.
	return r.gangs.Observe(ctx, observed, gangs.RetryInterval/2)
}

// writePodGroup writes the job's PodGroup. It writes only fields that differ, because the scheduler writes
// the PodGroup too. A NotFound error may refer to the kind, if its scheduler was uninstalled.
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
	original := observed.PodGroups[0]
	return r.applyOne(ctx, observed, operation{
		verb:   verbUpdate,
		digest: func(client.Object) string { return refusal.DigestPatch(original, wanted) },
		do: func(ctx context.Context, _ client.Object) effect {
			if err := r.client.Patch(ctx, wanted, client.MergeFrom(original), controllers.FieldOwner); err != nil {
				return effect{err: fmt.Errorf("patching %s %s/%s: %w", typeOf(wanted), wanted.GetNamespace(), wanted.GetName(), err)}
			}
			r.assumed.add(observed.Job, wanted, r.clock.Now())
			return effect{}
		},
	}, wanted)
}

// errGoing is returned for a creation if a terminating object has the name.
var errGoing = errors.New("is still being deleted")
