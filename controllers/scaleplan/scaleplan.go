// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleplan

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

const (
	// maxWrites is how many plans one reconcile writes or deletes. Other jobs come first then.
	maxWrites = 100
	// batchDelay is the delay before the next batch.
	batchDelay = 10 * time.Millisecond

	actionReview  = "Review"
	reconcileSpan = "reconcile scaleplan"
)

// Options are the settings of the controller. The zero value selects the defaults.
type Options struct {
	// MaxPods is the maximum number of pods of a job.
	MaxPods int32
	// JobVersion returns the version of jobs in owner references: v2alpha1 by default.
	JobVersion func(context.Context) (string, error)
	// Recorder records Events: by default the manager's.
	Recorder events.EventRecorder
	// Registerer registers the metrics: by default that of controller-runtime.
	Registerer prometheus.Registerer
	// Traces records a span for each reconcile; nil for none.
	Traces trace.TracerProvider
	// MayAct is closed when no other operator acts. Until then the controller writes nothing. Nil if there
	// is no other operator.
	MayAct <-chan struct{}
	// Shards are those whose jobs are reviewed; nil for all jobs, by the leader.
	Shards *sharding.Held
}

// Reconciler reviews the ScalePlans of jobs.
type Reconciler struct {
	client     client.Client
	recorder   events.EventRecorder
	metrics    *planMetrics
	maxPods    int32
	jobVersion func(context.Context) (string, error)
	clock      clock.PassiveClock
}

// New returns the reconciler. Setup runs it in a manager. The options must have a recorder and a registerer.
func New(cached client.Client, clock clock.PassiveClock, options Options) (*Reconciler, error) {
	metrics, err := newMetrics(options.Registerer)
	if err != nil {
		return nil, err
	}
	if options.JobVersion == nil {
		options.JobVersion = func(context.Context) (string, error) { return v2alpha1.Version, nil }
	}
	return &Reconciler{
		client: cached, recorder: options.Recorder, metrics: metrics, maxPods: cmp.Or(options.MaxPods, limits.PodsPerJob),
		jobVersion: options.JobVersion, clock: clock,
	}, nil
}

// Setup adds the controller to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if options.Recorder == nil {
		options.Recorder = mgr.GetEventRecorder(names.ControllerName)
	}
	if options.Registerer == nil {
		options.Registerer = ctrlmetrics.Registry
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v2alpha1.ScalePlan{}, controllers.PlanIndex, controllers.JobOfPlan); err != nil {
		return fmt.Errorf("indexing ScalePlans by job: %w", err)
	}
	reconciler, err := New(mgr.GetClient(), clock.RealClock{}, options)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("scaleplan").
		Watches(&v2alpha1.ScalePlan{}, handler.EnqueueRequestsFromMapFunc(jobOf)).
		Watches(&v2alpha1.DIJob{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(options.Shards.Changes(), jobChanges())).
		WatchesRawSource(options.Shards.Source(reconciler.jobs)).
		WithOptions(controller.Options{NeedLeaderElection: options.Shards.NeedLeaderElection()}).
		Complete(controllers.GateUntil(options.MayAct, options.Shards.Reconciler(tracing.Reconciler(reconciler, options.Traces, reconcileSpan), nil)))
	if err != nil {
		return fmt.Errorf("adding the controller of ScalePlans: %w", err)
	}
	return nil
}

// jobOf returns the job that a plan names.
func jobOf(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range controllers.JobOfPlan(object) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}})
	}
	return requests
}

// jobs returns the jobs that plans name.
func (r *Reconciler) jobs(ctx context.Context) ([]types.NamespacedName, error) {
	var list v2alpha1.ScalePlanList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScalePlans: %w", err)
	}
	var jobs []types.NamespacedName
	for i := range list.Items {
		for _, request := range jobOf(ctx, &list.Items[i]) {
			jobs = append(jobs, request.NamespacedName)
		}
	}
	return jobs, nil
}

// jobChanges passes the changes of jobs that a review depends on.
func jobChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		before, okBefore := update.ObjectOld.(*v2alpha1.DIJob)
		after, okAfter := update.ObjectNew.(*v2alpha1.DIJob)
		return okBefore && okAfter && (before.Generation != after.Generation ||
			state.IsFinished(&before.Status) != state.IsFinished(&after.Status) ||
			!equality.Semantic.DeepEqual(scaling.RecordOf(before), scaling.RecordOf(after)))
	}}
}

// Reconcile reviews the plans of one job, and writes or deletes those that changed.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var list v2alpha1.ScalePlanList
	err := r.client.List(ctx, &list, client.InNamespace(request.Namespace), client.MatchingFields{controllers.PlanIndex: request.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the ScalePlans of job %s: %w", request.NamespacedName, err)
	}
	if len(list.Items) == 0 {
		return ctrl.Result{}, nil
	}
	job, err := controllers.Find(ctx, r.client, request.NamespacedName, &v2alpha1.DIJob{})
	if err != nil {
		return ctrl.Result{}, err
	}
	var members *v2alpha1.Membership
	if job != nil && state.IsCoordinatorLed(job) {
		if members, err = controllers.Find(ctx, r.client, request.NamespacedName, &v2alpha1.Membership{}); err != nil {
			return ctrl.Result{}, err
		}
	}
	plans := make([]*v2alpha1.ScalePlan, len(list.Items))
	for i := range list.Items {
		plans[i] = &list.Items[i]
	}
	verdicts, after := scaling.Review(job, members, plans, r.maxPods, r.clock.Now())
	written := 0
	for i := range verdicts {
		verdict := &verdicts[i]
		if !verdict.Delete && !verdict.Own && !verdict.IsChanged() {
			continue
		}
		if written++; written > maxWrites {
			return ctrl.Result{RequeueAfter: batchDelay}, nil
		}
		err := r.apply(ctx, job, verdict)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			// The cache is behind. An event follows.
			continue
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// apply writes one verdict, and records its Events.
func (r *Reconciler) apply(ctx context.Context, job *v2alpha1.DIJob, verdict *scaling.Verdict) error {
	if verdict.Delete {
		if err := r.client.Delete(ctx, verdict.Plan, client.Preconditions{UID: &verdict.Plan.UID}); err != nil {
			return fmt.Errorf("deleting ScalePlan %s/%s: %w", verdict.Plan.Namespace, verdict.Plan.Name, err)
		}
		return nil
	}
	plan := verdict.Plan.DeepCopy()
	if verdict.Own {
		if err := r.own(ctx, job, plan); err != nil {
			return err
		}
	}
	if !verdict.IsChanged() {
		return nil
	}
	before := plan.DeepCopy()
	plan.Status = verdict.Status
	if err := r.client.Status().Patch(ctx, plan, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), controllers.FieldOwner); err != nil {
		return fmt.Errorf("patching the status of ScalePlan %s/%s: %w", plan.Namespace, plan.Name, err)
	}
	r.record(job, plan, verdict.Reason)
	return nil
}

// own makes the job the owner of a plan, so that the plan is deleted with it. The job does not control it, and
// its deletion does not wait for it.
func (r *Reconciler) own(ctx context.Context, job *v2alpha1.DIJob, plan *v2alpha1.ScalePlan) error {
	version, err := r.jobVersion(ctx)
	if err != nil {
		return err
	}
	before := plan.DeepCopy()
	owner := workload.Owner(job, version)
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	plan.OwnerReferences = append(plan.OwnerReferences, *owner)
	if err := r.client.Patch(ctx, plan, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), controllers.FieldOwner); err != nil {
		return fmt.Errorf("making job %s/%s the owner of ScalePlan %s: %w", job.Namespace, job.Name, plan.Name, err)
	}
	return nil
}

// record records the Events of a changed status about the plan and its job, and counts a finished plan.
func (r *Reconciler) record(job *v2alpha1.DIJob, plan *v2alpha1.ScalePlan, reason string) {
	if scaling.IsFinished(plan.Status.Phase) {
		r.metrics.finished.WithLabelValues(string(plan.Status.Phase), string(cmp.Or(plan.Spec.Origin, v2alpha1.PlanManual))).Inc()
	}
	if reason == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if plan.Status.Phase == v2alpha1.PlanFailed || plan.Status.Phase == v2alpha1.PlanRefused {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(plan, nil, kind, reason, actionReview, "%s", recorder.Note(plan.Status.Message))
	if job != nil {
		r.recorder.Eventf(job, plan, kind, reason, actionReview, "%s", recorder.Note("ScalePlan "+plan.Name+": "+plan.Status.Message))
	}
}
