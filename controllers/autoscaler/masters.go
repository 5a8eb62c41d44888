// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/queueing"
)

// isIdle reports whether the operator leaves the size of a job alone now: the job does not run.
func isIdle(job *v2alpha1.DIJob) bool {
	return job.DeletionTimestamp != nil || names.OtherManager(&job.Spec) != "" || ptr.Deref(job.Spec.Suspend, false) ||
		state.IsFinished(&job.Status) || job.Status.Phase != v2alpha1.JobRunning || conditions.IsTrue(&job.Status, v2alpha1.ConditionInvalidSpec)
}

// otherMaster describes what else decides about the size of a job now; empty if nothing does.
func otherMaster(ctx context.Context, reader client.Reader, job *v2alpha1.DIJob) (string, error) {
	if plan := activePlan(job); plan != "" && !job.Spec.Preemptible {
		return fmt.Sprintf("ScalePlan %q is executed first", plan), nil
	}
	return masterOf(ctx, reader, job)
}

// masterOf describes what decides about the size of a job instead of the operator's rules and optimizers;
// empty if nothing does.
func masterOf(ctx context.Context, reader client.Reader, job *v2alpha1.DIJob) (string, error) {
	if job.Spec.Preemptible {
		return "the allocator decides about the size of a preemptible job", nil
	}
	if queue := queueing.ForJob(job).Queue; queue != "" {
		return fmt.Sprintf("queue %q decides when the job grows", queue), nil
	}
	return horizontalAutoscaler(ctx, reader, job)
}

// activePlan returns the name of the ScalePlan that the operator executes; empty if there is none.
func activePlan(job *v2alpha1.DIJob) string {
	if job.Status.Scaling == nil || job.Status.Scaling.Plan == nil {
		return ""
	}
	if plan := job.Status.Scaling.Plan; plan.Phase == v2alpha1.PlanExecuting || plan.Phase == v2alpha1.PlanPending {
		return plan.Name
	}
	return ""
}

// horizontalAutoscaler describes the HorizontalPodAutoscaler that scales a job; empty if none does. KEDA makes
// one, too.
func horizontalAutoscaler(ctx context.Context, reader client.Reader, job *v2alpha1.DIJob) (string, error) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := reader.List(ctx, &list, client.InNamespace(job.Namespace)); err != nil {
		return "", fmt.Errorf("listing the HorizontalPodAutoscalers of namespace %s: %w", job.Namespace, err)
	}
	for i := range list.Items {
		target := list.Items[i].Spec.ScaleTargetRef
		if target.Kind == controllers.JobKind && target.Name == job.Name && strings.HasPrefix(target.APIVersion, v2alpha1.GroupName+"/") {
			return fmt.Sprintf("HorizontalPodAutoscaler %q scales the job: remove it or spec.autoscale.ratio", list.Items[i].Name), nil
		}
	}
	return "", nil
}
