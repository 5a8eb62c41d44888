// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/lifecycle"
)

// confirmResize reads a job live that is to have other counts than before: the
// cache drops the managed fields, which say who asked for them. So a resize
// costs one read more, and no job costs memory for who wrote it.
func (r *Reconciler) confirmResize(ctx context.Context, observed *lifecycle.Observed) error {
	if !lifecycle.IsResized(*observed) {
		return nil
	}
	job, err := controllers.Find(ctx, r.live, client.ObjectKeyFromObject(observed.Job), &v2alpha1.DIJob{})
	if err != nil {
		return err
	}
	// One that is gone, or has a successor of its name, is for the watch to tell of.
	if job != nil && job.UID == observed.Job.UID {
		observed.Job = job
	}
	return nil
}

// writeElastic writes into a stored job's spec what the scale subresource reads.
// It is done once a job is at rest, so that it is in the way of nothing.
func (r *Reconciler) writeElastic(ctx context.Context, job *v2alpha1.DIJob, elastic *v2alpha1.Elastic) error {
	if elastic == nil {
		return nil
	}
	wanted := job.DeepCopy()
	wanted.Spec.Elastic = elastic
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.client.Patch(ctx, wanted, patch, controllers.FieldOwner)); err != nil {
		return fmt.Errorf("writing into job %s/%s which task may be resized: %w", job.Namespace, job.Name, err)
	}
	return nil
}
