// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
)

// deleteLeftBehind deletes what earlier jobs of the name left behind. It returns after how long to look again, 0 for
// never. The objects were read before the job is read live. If that has the name then, the jobs that controlled
// them are gone.
func (r *Reconciler) deleteLeftBehind(ctx context.Context, observed *lifecycle.Observed) (effects, time.Duration) {
	found := upkeep.FindLeftBehind(observed)
	if len(found.Due) == 0 {
		return nil, found.Next
	}
	hasName, err := r.hasName(ctx, observed.Job)
	if err != nil {
		return effects{{err: err}}, found.Next
	}
	if !hasName {
		return nil, found.Next
	}
	kinds := map[string][]client.Object{}
	for _, object := range found.Due {
		kind := typeOf(object)
		kinds[kind] = append(kinds[kind], object)
	}
	var done effects
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		done = append(done, r.apply(ctx, observed, operation{verb: verbCollect, digest: refusal.NoContent, do: r.collect}, kinds[kind])...)
	}
	return done, found.Next
}

// hasName reports whether the API server has an observed job, and no other one of its name. Otherwise a watch event follows.
func (r *Reconciler) hasName(ctx context.Context, observed *v2alpha1.DIJob) (bool, error) {
	job, err := controllers.Find(ctx, r.live, client.ObjectKeyFromObject(observed), &v2alpha1.DIJob{})
	return job != nil && job.UID == observed.UID, err
}

// collect deletes an object that an earlier job left behind, if it is as observed: its owners have not changed.
func (r *Reconciler) collect(ctx context.Context, object client.Object) effect {
	uid, version := object.GetUID(), object.GetResourceVersion()
	done := r.removeWith(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if done.err == nil && done.object != nil {
		done.reason = v2alpha1.ReasonLeftBehind
	}
	return done
}

// recordLeftBehind records one Event for all objects that earlier jobs left behind and that were deleted.
func (r *Reconciler) recordLeftBehind(job *v2alpha1.DIJob, done effects) {
	pods, others := 0, 0
	for i := range done {
		switch {
		case done[i].reason != v2alpha1.ReasonLeftBehind:
		case done[i].isPod():
			pods++
		default:
			others++
		}
	}
	if pods+others > 0 {
		r.recorder.Eventf(job, nil, corev1.EventTypeWarning, v2alpha1.ReasonLeftBehind, actionDelete,
			"deleted %s and %s that an earlier job of this name left behind: Kubernetes' garbage collector had not deleted them",
			english.Plural(pods, "pod", ""), english.Plural(others, "other object", ""))
	}
}
