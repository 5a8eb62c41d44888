// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
)

// membershipOf reads the Membership of a coordinator-led job; nil if there is none yet, or for any other job.
func (r *Reconciler) membershipOf(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		return nil, nil
	}
	list := &v2alpha1.Membership{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(job), list)
	switch {
	case apierrors.IsNotFound(err), err == nil && (list.Spec.JobUID != job.UID || list.DeletionTimestamp != nil):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Membership of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return list, nil
}

// resizeMembers sets the number of collectors of a coordinator-led job. Its coordinator learns of it by the list of
// di-server, which it polls. The patch has the resource version, so that another's change is never overwritten.
func (r *Reconciler) resizeMembers(ctx context.Context, job *v2alpha1.DIJob, pool *pool, count int32) error {
	list := pool.members
	wanted := list.DeepCopy()
	resize := membership.Resize{
		Namespace: job.Namespace, Job: job.Name, Replicas: map[v2alpha1.TaskType]int32{pool.kind: count},
		ID: names.AutoscalerName + "/" + list.ResourceVersion, MaxMembers: r.maxPods, Random: rand.String,
	}
	if err := resize.Apply(&wanted.Spec, &wanted.Status, r.clock.Now()); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	patch := client.MergeFromWithOptions(list, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, wanted, patch, FieldOwner); err != nil {
		return fmt.Errorf("resizing the Membership of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// countMembers returns the number of pods of a task of a coordinator-led job.
func countMembers(list *v2alpha1.Membership, task v2alpha1.TaskType) int32 {
	if task == v2alpha1.TaskTypeCoordinator {
		return 1
	}
	count := int32(0)
	for i := range list.Spec.Members {
		if list.Spec.Members[i].Task == task {
			count += 1 + int32(len(list.Spec.Members[i].DDPGPUs))
		}
	}
	return count
}
