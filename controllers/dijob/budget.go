// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/refusal"
	"opendilab.org/di-orchestrator/job/lifecycle"
)

// observeBudget adds the PodDisruptionBudget of the job's name, if a job of that name owns it.
func (r *Reconciler) observeBudget(ctx context.Context, observed *lifecycle.Observed) error {
	budget, err := controllers.Find(ctx, r.client, client.ObjectKeyFromObject(observed.Job), &policyv1.PodDisruptionBudget{})
	switch {
	case err != nil:
		return err
	case budget == nil || len(controllers.OwnerName(budget)) == 0:
	case isOfJob(budget, observed.Job):
		observed.Budget = budget
	default:
		observed.TakenBudgets[budget.Name] = leftBy(budget)
		observed.LeftBehind = append(observed.LeftBehind, budget)
	}
	return nil
}

// writeBudget creates, changes or deletes the job's PodDisruptionBudget. Pods are deleted before and created
// after, so that the budget never allows more evictions than the job does.
func (r *Reconciler) writeBudget(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effects {
	switch {
	case decision.DeleteBudget != nil:
		return effects{r.applyOne(ctx, observed, r.deletion(), decision.DeleteBudget)}
	case decision.CreateBudget != nil:
		return effects{r.create(ctx, observed.Job, decision.CreateBudget, nil)}
	case decision.UpdateBudget != nil:
		return effects{r.patchBudget(ctx, observed, decision.UpdateBudget)}
	}
	return nil
}

func (r *Reconciler) patchBudget(ctx context.Context, observed *lifecycle.Observed, wanted *policyv1.PodDisruptionBudget) effect {
	return r.applyOne(ctx, observed, operation{
		verb:   verbUpdate,
		digest: func(client.Object) string { return refusal.DigestPatch(observed.Budget, wanted) },
		do: func(ctx context.Context, _ client.Object) effect {
			if err := client.IgnoreNotFound(r.client.Patch(ctx, wanted, client.MergeFrom(observed.Budget), controllers.FieldOwner)); err != nil {
				return effect{err: fmt.Errorf("patching PodDisruptionBudget %s/%s: %w", wanted.Namespace, wanted.Name, err)}
			}
			r.assumed.add(observed.Job, wanted, r.clock.Now())
			return effect{}
		},
	}, wanted)
}
