// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/scaling"
)

// observePlans reads the unfinished ScalePlans of a job. If the plan that it executes is not in the cache, it
// reads that live, because a missing plan is a cancelled one.
func (r *Reconciler) observePlans(ctx context.Context, observed *lifecycle.Observed) error {
	job := observed.Job
	var plans v2alpha1.ScalePlanList
	err := r.client.List(ctx, &plans, client.InNamespace(job.Namespace),
		client.MatchingFields{controllers.UnfinishedPlanIndex: job.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the ScalePlans of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for i := range plans.Items {
		observed.Plans = append(observed.Plans, &plans.Items[i])
	}
	record, plan := scaling.Executing(job, observed.Plans)
	if record == nil || plan != nil {
		return nil
	}
	plan, err = controllers.Find(ctx, r.live, types.NamespacedName{Namespace: job.Namespace, Name: record.Name}, &v2alpha1.ScalePlan{})
	if err != nil {
		return err
	}
	if plan != nil {
		observed.Plans = append(observed.Plans, plan)
	}
	return nil
}

// writeCounts writes counts into the spec of a job, as the field manager that requested them. If the API
// server rejects them, the plan that requested them has failed.
func (r *Reconciler) writeCounts(ctx context.Context, job *v2alpha1.DIJob, counts *state.Counts) error {
	patch, err := patchOfCounts(job, counts)
	if err != nil {
		return err
	}
	err = client.IgnoreNotFound(r.client.Patch(ctx, job.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(counts.Manager)))
	if err == nil {
		return nil
	}
	record := scaling.RecordOf(job)
	if record == nil || !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) {
		return fmt.Errorf("writing the counts of %s into job %s/%s: %w", counts.Manager, job.Namespace, job.Name, err)
	}
	status := job.Status.DeepCopy()
	now := metav1.NewTime(r.clock.Now().Truncate(time.Second))
	status.Scaling.Plan.Phase, status.Scaling.Plan.CompletionTime = v2alpha1.PlanFailed, &now
	status.Scaling.Plan.Message = state.Few([]string{"the API server rejects the replicas: " + err.Error()}, "")
	_, err = r.commit(ctx, job, status)
	return err
}

// patchOperation is one operation of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchOfCounts returns a JSON patch of counts. It names tasks by their index, so it holds for this version
// of the job only. A merge patch would replace all tasks.
func patchOfCounts(job *v2alpha1.DIJob, counts *state.Counts) ([]byte, error) {
	operations := []patchOperation{{"replace", "/metadata/resourceVersion", job.ResourceVersion}}
	for _, count := range counts.Tasks {
		operations = append(operations, patchOperation{"add", fmt.Sprintf("/spec/tasks/%d/replicas", count.Task), count.Replicas})
		if count.IsElastic {
			operations = append(operations, patchOperation{"add", "/spec/elastic/replicas", count.Replicas})
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of counts: %w", err)
	}
	return patch, nil
}

// jobOfPlan returns the job that a ScalePlan names.
func jobOfPlan(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range controllers.JobOfPlan(object) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}})
	}
	return requests
}

// planChanges passes the changes of ScalePlans that a job acts on: a plan was accepted, or an unfinished one
// is gone.
func planChanges() predicate.Predicate {
	isReady := func(object client.Object) bool {
		plan, isPlan := object.(*v2alpha1.ScalePlan)
		return isPlan && scaling.IsReady(plan)
	}
	return predicate.Funcs{
		CreateFunc: func(create event.CreateEvent) bool { return isReady(create.Object) },
		DeleteFunc: func(deletion event.DeleteEvent) bool { return isReady(deletion.Object) },
		UpdateFunc: func(update event.UpdateEvent) bool {
			hasLeft := update.ObjectOld.GetDeletionTimestamp().IsZero() && !update.ObjectNew.GetDeletionTimestamp().IsZero()
			hasOwner := !slices.EqualFunc(update.ObjectOld.GetOwnerReferences(), update.ObjectNew.GetOwnerReferences(),
				func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
			return isReady(update.ObjectNew) && (!isReady(update.ObjectOld) || hasOwner || hasLeft)
		},
	}
}
