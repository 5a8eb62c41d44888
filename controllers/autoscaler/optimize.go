// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
)

const (
	// spanOfPlan is the name of the spans of the optimizer's reconciles.
	spanOfPlan = "optimize"
	// maxStatusMessage bounds the message in the status, in bytes.
	maxStatusMessage = 1024
)

// Optimizing lets an optimizer plan the replicas and resources of jobs with spec.autoscale.optimizer. It decides
// about one job in each reconcile.
type Optimizing struct {
	// client reads from caches and writes to the API server. live reads usage from the metrics API, and the API server.
	client client.Client
	live   client.Reader
	// local decides, and remote where the job says so and the installation has one.
	local, remote optimizer.Optimizer
	recorder      events.EventRecorder
	clock         clock.PassiveClock
	samples       samples
	// written are the jobs as this reconciler wrote them, until the cache has those versions.
	written assume.Cache
}

// optimizerOf returns the setting of a job; nil if it has none.
func optimizerOf(job *v2alpha1.DIJob) *v2alpha1.OptimizerRule {
	if job.Spec.Autoscale == nil {
		return nil
	}
	return job.Spec.Autoscale.Optimizer
}

// Reconcile measures the usage of a job, and creates the plan of its optimizer.
func (o *Optimizing) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job, err := controllers.Find(ctx, o.client, request.NamespacedName, &v2alpha1.DIJob{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if job == nil || optimizerOf(job) == nil || isInactive(job) || job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		o.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	job = assume.Latest(&o.written, job)
	if at := killedAt(job, o.clock.Now()); !at.IsZero() {
		isDone, err := o.recover(ctx, job, at)
		if err != nil || !isDone {
			return ctrl.Result{RequeueAfter: interval}, ignoreChanged(err)
		}
	}
	if isIdle(job) {
		// The next attempt has other usage.
		o.samples.drop(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if left := o.samples.left(request.NamespacedName, o.clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return ctrl.Result{RequeueAfter: interval}, ignoreChanged(o.optimize(ctx, job))
}

// ignoreChanged ignores that the job has changed: the next reconcile decides again.
func ignoreChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// forget drops what the process knows of a job.
func (o *Optimizing) forget(job types.NamespacedName) {
	o.samples.forget(job)
	o.written.Forget(job)
}

func (o *Optimizing) optimize(ctx context.Context, job *v2alpha1.DIJob) error {
	var pods corev1.PodList
	if err := o.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{controllers.OwnerIndex: job.Name}); err != nil {
		return fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	pods.Items = controllers.PodsOf(job, pods.Items)
	plans, err := o.plansOf(ctx, job)
	if err != nil {
		return err
	}
	nodes, err := o.largestNode(ctx)
	if err != nil {
		return err
	}
	master, err := masterOf(ctx, o.live, job)
	if err != nil {
		return err
	}
	used, err := o.usage(ctx, job)
	if err != nil {
		return o.record(ctx, job, nil, "", "", fmt.Sprintf("the usage is not known: %v", err))
	}
	now := o.clock.Now()
	known := describe(job, pods.Items, plans, now)
	if master != "" {
		keepCounts(known)
	}
	known.Limits = limitsOf(optimizerOf(job), nodes)
	known.Samples, known.LastPlan = o.samples.add(job, sampleOf(known, used, now)), lastPlan(plans)
	stage := optimizer.StageOf(known)
	plan, err := o.choose(job).Generate(ctx, stage, known)
	if err == nil {
		plan, err = optimizer.Check(plan, known)
	}
	if err != nil {
		return o.record(ctx, job, known, stage, "", fmt.Sprintf("the plan is refused: %v", err))
	}
	if plan.Empty() || known.Busy {
		return o.record(ctx, job, known, stage, "", plan.Reason)
	}
	return o.create(ctx, job, known, stage, plan, optimizer.ScalePlan(known, plan))
}

// choose returns the optimizer of a job.
func (o *Optimizing) choose(job *v2alpha1.DIJob) optimizer.Optimizer {
	if optimizerOf(job).Type == v2alpha1.OptimizerRemote && o.remote != nil {
		return o.remote
	}
	return o.local
}

// create creates the object of a plan, unless the job only wants to know it.
func (o *Optimizing) create(
	ctx context.Context, job *v2alpha1.DIJob, known *optimizer.Job, stage optimizer.Stage, made optimizer.Plan, plan *v2alpha1.ScalePlan,
) error {
	if optimizerOf(job).DryRun {
		return o.record(ctx, job, known, stage, "", "would plan: "+plan.Spec.Reason)
	}
	err := o.client.Create(ctx, plan)
	switch {
	case isRefused(err):
		return o.record(ctx, job, known, stage, "", fmt.Sprintf("the API server refuses the plan: %v", err))
	case err != nil && !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating a ScalePlan of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for _, change := range made.Tasks {
		if task := known.Task(change.Name); change.Requests.CPU > task.Requests.CPU || change.Requests.Memory > task.Requests.Memory {
			task.GrownAt = known.Now
		}
	}
	o.recorder.Eventf(job, plan, corev1.EventTypeNormal, v2alpha1.ReasonPlanned, "Plan", "%s", recorder.Note(plan.Name+": "+plan.Spec.Reason))
	log.FromContext(ctx).WithValues(names.LogWhole(job)...).Info("Planned a job", "plan", plan.Name, "stage", stage, "reason", plan.Spec.Reason)
	return o.record(ctx, job, known, stage, plan.Name, plan.Spec.Reason)
}

// record writes the decision and the peaks of the tasks to the status, unless it has just done so.
func (o *Optimizing) record(
	ctx context.Context, job *v2alpha1.DIJob, known *optimizer.Job, stage optimizer.Stage, plan, message string,
) error {
	wanted := job.DeepCopy()
	if wanted.Status.Autoscaling == nil {
		wanted.Status.Autoscaling = &v2alpha1.AutoscalingStatus{}
	}
	if wanted.Status.Autoscaling.Optimizer == nil {
		wanted.Status.Autoscaling.Optimizer = &v2alpha1.OptimizerStatus{}
	}
	now, last := o.clock.Now(), *wanted.Status.Autoscaling.Optimizer
	next := wanted.Status.Autoscaling.Optimizer
	if stage != "" {
		next.Stage = string(stage)
	}
	if plan != "" {
		next.Plan = plan
	}
	next.Message = cut(message, maxStatusMessage)
	if known != nil {
		next.Peaks = peaksOf(known)
	}
	isRecent := last.DecidedAt != nil && now.Sub(last.DecidedAt.Time) < refreshInterval
	if equality.Semantic.DeepEqual(*next, last) || isRecent && next.Stage == last.Stage && next.Plan == last.Plan {
		return nil
	}
	at := metav1.NewTime(now)
	next.DecidedAt = &at
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := o.client.Status().Patch(ctx, wanted, patch); err != nil {
		return fmt.Errorf("recording the plan of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	o.written.Assume(client.ObjectKeyFromObject(job), wanted, now)
	return nil
}

// peaksOf returns the maximum usage of a replica of each task.
func peaksOf(known *optimizer.Job) []v2alpha1.TaskPeak {
	all := optimizer.Peaks(known)
	var peaks []v2alpha1.TaskPeak
	for i := range known.Tasks {
		task := &known.Tasks[i]
		peak := v2alpha1.TaskPeak{Task: task.Name, CPU: all[task.Name].CPU, Memory: all[task.Name].Memory}
		if !task.GrownAt.IsZero() {
			peak.GrownAt = &metav1.Time{Time: task.GrownAt}
		}
		peaks = append(peaks, peak)
	}
	return peaks
}

// plansOf returns the plans of a job. They are shared with the cache.
func (o *Optimizing) plansOf(ctx context.Context, job *v2alpha1.DIJob) ([]v2alpha1.ScalePlan, error) {
	var list v2alpha1.ScalePlanList
	err := o.client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingFields{controllers.PlanIndex: job.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the ScalePlans of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return list.Items, nil
}

// lastPlan returns when the last plan was created.
func lastPlan(plans []v2alpha1.ScalePlan) time.Time {
	var last time.Time
	for i := range plans {
		if at := plans[i].CreationTimestamp.Time; at.After(last) {
			last = at
		}
	}
	return last
}

// largestNode returns the largest allocatable CPU and memory of a node.
func (o *Optimizing) largestNode(ctx context.Context) (optimizer.Resources, error) {
	var nodes corev1.NodeList
	if err := o.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return optimizer.Resources{}, fmt.Errorf("listing nodes: %w", err)
	}
	var largest optimizer.Resources
	for i := range nodes.Items {
		allocatable := nodes.Items[i].Status.Allocatable
		largest.CPU = max(largest.CPU, allocatable.Cpu().MilliValue())
		largest.Memory = max(largest.Memory, allocatable.Memory().Value())
	}
	return largest, nil
}

// limitsOf returns the limits of a job's plans.
func limitsOf(rule *v2alpha1.OptimizerRule, node optimizer.Resources) optimizer.Limits {
	limits := optimizer.Limits{Node: node}
	if rule.Limit.CPU != nil {
		limits.Job.CPU = rule.Limit.CPU.MilliValue()
	}
	if rule.Limit.Memory != nil {
		limits.Job.Memory = rule.Limit.Memory.Value()
	}
	return limits
}

// cut returns the beginning of a text that has at most some bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return recorder.Note(text)[:most-3] + "..."
}

// key identifies a job.
type key = types.NamespacedName
