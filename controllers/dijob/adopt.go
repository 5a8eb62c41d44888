// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/job/lifecycle"
)

// adopt patches the metadata of objects of an earlier release. Each patch includes the resource version,
// because it replaces a list that other writers change too.
func (r *Reconciler) adopt(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effects {
	if len(decision.AdoptPods)+len(decision.AdoptServices) == 0 {
		return nil
	}
	originals := originalsOf(observed)
	adoption := operation{verb: verbAdopt, digest: originals.digest, do: func(ctx context.Context, object client.Object) effect {
		return r.patchMetadata(ctx, originals[object.GetUID()], object)
	}}
	pods := r.apply(ctx, observed, adoption, toObjects(decision.AdoptPods))
	return append(pods, r.apply(ctx, observed, adoption, toObjects(decision.AdoptServices))...)
}

// patchMetadata sets the desired metadata of an object, unless the object no longer exists.
func (r *Reconciler) patchMetadata(ctx context.Context, original, wanted client.Object) effect {
	patch := client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})
	stored, err := controllers.DeepCopy(wanted)
	if err != nil {
		return effect{err: err}
	}
	if err := r.client.Patch(ctx, stored, patch); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return effect{}
		}
		return effect{err: fmt.Errorf("adopting %T %s/%s: %w", wanted, wanted.GetNamespace(), wanted.GetName(), err)}
	}
	if stripped := strippedFrom(stored, wanted); stripped != "" {
		return effect{err: &refusal.StrippedError{Annotation: stripped}}
	}
	return effect{object: wanted, reason: v2alpha1.ReasonAdopted}
}

// recordAdoption records one Event for all adopted objects.
func (r *Reconciler) recordAdoption(observed *lifecycle.Observed, done effects) {
	if observed.Settings.JobVersion != v2alpha1.Version {
		// A rollback moves the references and adopts nothing.
		return
	}
	job := observed.Job
	pods, services := 0, 0
	for i := range done {
		if done[i].reason != v2alpha1.ReasonAdopted {
			continue
		}
		if _, isPod := done[i].object.(*corev1.Pod); isPod {
			pods++
		} else {
			services++
		}
	}
	if pods+services > 0 {
		r.recorder.Eventf(job, nil, corev1.EventTypeNormal, v2alpha1.ReasonAdopted, actionAdopt,
			"took over %s and %s of an earlier release", english.Plural(pods, "pod", ""), english.Plural(services, "service", ""))
	}
}
