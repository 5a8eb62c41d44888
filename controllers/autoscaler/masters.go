// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/queueing"
)

// isIdle reports whether the operator leaves the size of a job alone now: the job does not run.
func isIdle(job *v2alpha1.DIJob) bool {
	return isInactive(job) || job.Status.Phase != v2alpha1.JobRunning
}

// isInactive reports whether a job neither runs nor restarts, or is not the operator's.
func isInactive(job *v2alpha1.DIJob) bool {
	return job.DeletionTimestamp != nil || names.OtherManager(&job.Spec) != "" || ptr.Deref(job.Spec.Suspend, false) ||
		state.IsFinished(&job.Status) || conditions.IsTrue(&job.Status, v2alpha1.ConditionInvalidSpec)
}

// inquiry is what the API server answered about the master of a generation of a job.
type inquiry struct {
	at         time.Time
	generation int64
	// master describes the other master; empty if there is none.
	master string
}

// observeMaster adds what else decides about the size of a job now, or that its coordinator has not done so yet. It
// asks the API server at most once in an interval.
func (r *Reconciler) observeMaster(ctx context.Context, measured *measurement, members *v2alpha1.Membership) error {
	job := measured.job
	if plan := activePlan(job); plan != "" && !job.Spec.Preemptible {
		measured.obstacle, measured.message = v2alpha1.ReasonOtherMaster, fmt.Sprintf("ScalePlan %q is executed first", plan)
		return nil
	}
	if measured.asked.generation != job.Generation || measured.now.Sub(measured.asked.at) >= interval {
		master, err := horizontalAutoscaler(ctx, r.live, job)
		if err != nil {
			return err
		}
		measured.asked = inquiry{at: measured.now, generation: job.Generation, master: master}
	}
	switch {
	case measured.asked.master != "":
		measured.obstacle, measured.message = v2alpha1.ReasonOtherMaster, measured.asked.master
	case job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed && (members == nil || members.Spec.CoordinatorInstance == ""):
		measured.obstacle, measured.message = v2alpha1.ReasonWaitingForReports, "the coordinator has not requested replicas yet"
	}
	return nil
}

// masterOf describes what decides about the size of a job instead of an optimizer; empty if nothing does. The ratio rule
// decides within what the allocator and the queue give.
func masterOf(ctx context.Context, live client.Reader, job *v2alpha1.DIJob) (string, error) {
	if job.Spec.Preemptible {
		return "the allocator decides about the size of a preemptible job", nil
	}
	if queue := queueing.ForJob(job).Queue; queue != "" {
		return fmt.Sprintf("queue %q decides when the job grows", queue), nil
	}
	return horizontalAutoscaler(ctx, live, job)
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

// maxAutoscalers is how many HorizontalPodAutoscalers of a namespace are read, and autoscalersPerPage how many at once.
const (
	maxAutoscalers     = 5000
	autoscalersPerPage = 500
)

// horizontalAutoscaler describes the HorizontalPodAutoscaler that scales a job; empty if none does. KEDA makes
// one, too. It asks the API server, because a cache would hold those of all namespaces.
func horizontalAutoscaler(ctx context.Context, live client.Reader, job *v2alpha1.DIJob) (string, error) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	for range maxAutoscalers / autoscalersPerPage {
		err := live.List(ctx, &list, client.InNamespace(job.Namespace), client.Limit(autoscalersPerPage), client.Continue(list.Continue))
		if err != nil {
			return "", fmt.Errorf("listing the HorizontalPodAutoscalers of namespace %s: %w", job.Namespace, err)
		}
		for i := range list.Items {
			target := list.Items[i].Spec.ScaleTargetRef
			if target.Kind == controllers.JobKind && target.Name == job.Name && strings.HasPrefix(target.APIVersion, v2alpha1.GroupName+"/") {
				return fmt.Sprintf("HorizontalPodAutoscaler %q scales the job: remove it or spec.autoscale.ratio", list.Items[i].Name), nil
			}
		}
		if list.Continue == "" {
			return "", nil
		}
	}
	return fmt.Sprintf("the namespace has more than %d HorizontalPodAutoscalers, and one of them may scale the job", maxAutoscalers), nil
}
