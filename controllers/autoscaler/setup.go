// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"cmp"
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/tracing"
)

// defaultWorkers is the number of jobs that are decided about concurrently.
const defaultWorkers = 4

// Options are the settings of the autoscaler. The zero value selects the defaults.
type Options struct {
	// Prometheus answers the queries of jobs. Nil if the installation has none.
	Prometheus Querier
	// Local is the optimizer of jobs: by default that of package local. Remote is that of jobs of type Remote; nil if
	// the installation has none.
	Local, Remote optimizer.Optimizer
	// MaxPods is the maximum number of pods of a job: limits.PodsPerJob by default.
	MaxPods int32
	// Recorder records the Events of jobs: by default the manager's.
	Recorder events.EventRecorder
	// Registerer registers the metrics: by default that of controller-runtime.
	Registerer prometheus.Registerer
	// Traces records a span of each decision; nil for none.
	Traces trace.TracerProvider
	// Clock is the clock: the real one by default.
	Clock clock.PassiveClock
	// MayAct is closed when no other operator acts. Nil if there is no other operator.
	MayAct <-chan struct{}
	// Shards are those whose jobs are scaled; nil for all jobs, by the leader.
	Shards *sharding.Held
}

// Querier answers a query of PromQL that has one value.
type Querier interface {
	Query(ctx context.Context, query string) (float64, error)
}

// New returns the reconciler. The cached client reads from caches and writes to the API server, and the live one
// reads the API server. The options must have a recorder.
func New(cached client.Client, live client.Reader, options Options) (*Reconciler, error) {
	if options.Registerer == nil {
		options.Registerer = metrics.Registry
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	counted, err := newAutoscalerMetrics(options.Registerer)
	if err != nil {
		return nil, err
	}
	return &Reconciler{
		client: cached, live: live, recorder: options.Recorder, prometheus: options.Prometheus,
		maxPods: cmp.Or(options.MaxPods, limits.PodsPerJob), clock: options.Clock, metrics: counted,
		memories: memories{jobs: map[types.NamespacedName]*memory{}}, querying: querying{namespaces: map[string]bool{}},
	}, nil
}

// newOptimizing returns the reconciler of optimizers. The live client reads usage.
func newOptimizing(cached client.Client, live client.Reader, options Options) *Optimizing {
	if options.Local == nil {
		options.Local = local.New(local.Defaults())
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Optimizing{client: cached, live: live, local: options.Local, remote: options.Remote, recorder: options.Recorder, clock: options.Clock}
}

// Setup adds the autoscaler to a manager. The manager's cache must use controllers.CacheOptions.
func Setup(mgr ctrl.Manager, options Options) error {
	if options.Recorder == nil {
		options.Recorder = mgr.GetEventRecorder(names.ControllerName)
	}
	r, err := New(mgr.GetClient(), mgr.GetAPIReader(), options)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("autoscaler").
		For(&v2alpha1.DIJob{}, builder.WithPredicates(options.Shards.Changes(), controllers.ChangesOf(matters))).
		WatchesRawSource(options.Shards.Source(sharding.Jobs(mgr.GetClient()))).
		WithOptions(controller.Options{MaxConcurrentReconciles: defaultWorkers, NeedLeaderElection: options.Shards.NeedLeaderElection()}).
		Complete(controllers.GateUntil(options.MayAct, options.Shards.Reconciler(tracing.Reconciler(r, options.Traces, spanOfJob), r.forget)))
	if err != nil {
		return fmt.Errorf("adding the autoscaler: %w", err)
	}
	optimizing := newOptimizing(mgr.GetClient(), mgr.GetAPIReader(), options)
	err = ctrl.NewControllerManagedBy(mgr).
		Named("optimizer").
		For(&v2alpha1.DIJob{}, builder.WithPredicates(options.Shards.Changes(), controllers.ChangesOf(mattersToOptimizer))).
		WatchesRawSource(options.Shards.Source(sharding.Jobs(mgr.GetClient()))).
		WithOptions(controller.Options{MaxConcurrentReconciles: defaultWorkers, NeedLeaderElection: options.Shards.NeedLeaderElection()}).
		Complete(controllers.GateUntil(options.MayAct, options.Shards.Reconciler(tracing.Reconciler(optimizing, options.Traces, spanOfPlan), optimizing.forget)))
	if err != nil {
		return fmt.Errorf("adding the optimizer: %w", err)
	}
	return nil
}

// mattersToOptimizer returns the fields of a job that decide whether its optimizer runs; nil for a job without one.
func mattersToOptimizer(object client.Object) any {
	job, ok := object.(*v2alpha1.DIJob)
	if !ok || optimizerOf(job) == nil {
		return nil
	}
	var failure *metav1.Time
	if job.Status.LastFailure != nil {
		failure = job.Status.LastFailure.Time
	}
	return []any{job.Generation, job.Status.Phase, job.DeletionTimestamp.IsZero(), failure}
}

// matters returns the fields of a job that a decision depends on; nil for a job without a rule.
func matters(object client.Object) any {
	job, ok := object.(*v2alpha1.DIJob)
	if !ok || ruleOf(job) == nil && job.Status.Autoscaling == nil {
		return nil
	}
	var plan v2alpha1.PlanPhase
	if job.Status.Scaling != nil && job.Status.Scaling.Plan != nil {
		plan = job.Status.Scaling.Plan.Phase
	}
	return []any{job.Generation, job.Status.Phase, job.Status.Rates, plan, job.DeletionTimestamp.IsZero()}
}

// ruleOf returns the ratio rule of a job; nil if it has none.
func ruleOf(job *v2alpha1.DIJob) *v2alpha1.RatioRule {
	if job.Spec.Autoscale == nil {
		return nil
	}
	return job.Spec.Autoscale.Ratio
}
