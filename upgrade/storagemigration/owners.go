// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/job/workload"
)

// misversioned returns the objects whose owner reference does not name a job in the desired version.
// Callers must not change them.
func (m *Reconciler) misversioned(ctx context.Context, version string) ([]client.Object, error) {
	if m.Everything != nil {
		if err := m.Everything(ctx); err != nil {
			return nil, fmt.Errorf("watching the pods of all jobs: %w", err)
		}
	}
	var pods corev1.PodList
	var services corev1.ServiceList
	var configMaps corev1.ConfigMapList
	var memberships v2alpha1.MembershipList
	var plans v2alpha1.ScalePlanList
	var budgets policyv1.PodDisruptionBudgetList
	for _, list := range []client.ObjectList{&pods, &services, &configMaps, &memberships, &plans, &budgets} {
		if err := m.Cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing what jobs own: %w", err)
		}
	}
	var found []client.Object
	add := func(object client.Object) {
		if _, is := workload.WithOwnersAt(object.GetOwnerReferences(), version, ""); is {
			found = append(found, object)
		}
	}
	for i := range pods.Items {
		add(&pods.Items[i])
	}
	for i := range services.Items {
		add(&services.Items[i])
	}
	for i := range configMaps.Items {
		add(&configMaps.Items[i])
	}
	for i := range memberships.Items {
		add(&memberships.Items[i])
	}
	for i := range plans.Items {
		add(&plans.Items[i])
	}
	for i := range budgets.Items {
		add(&budgets.Items[i])
	}
	return found, nil
}

// moveOwners changes owner references to the desired version, including those to unmanaged jobs. Each
// patch includes the resource version, because it replaces a list that other writers change too. A
// conflict is retried.
func (m *Reconciler) moveOwners(ctx context.Context, s *state) error {
	found, err := m.misversioned(ctx, s.Wanted)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(migratedAtOnce)
	for _, object := range found {
		group.Go(func() error { return m.moveOwner(running, object, s.Wanted) })
	}
	return group.Wait()
}

func (m *Reconciler) moveOwner(ctx context.Context, object client.Object, version string) error {
	wanted, err := controllers.DeepCopy(object)
	if err != nil {
		return err
	}
	moved, _ := workload.WithOwnersAt(object.GetOwnerReferences(), version, "")
	wanted.SetOwnerReferences(moved)
	err = m.API.Patch(ctx, wanted, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}), controllers.FieldOwner)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("moving the owner references of %T %s/%s to %s: %w", object, object.GetNamespace(), object.GetName(), version, err)
	}
	return nil
}
