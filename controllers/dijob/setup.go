// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/controllers/dijob/jobmetrics"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/workload"
)

const (
	// firstRetry and lastRetry bound the backoff of a job whose reconcile failed. Writes that the API
	// server refuses have longer delays.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// retries returns the rate limiter of the queue of jobs.
func (r *Reconciler) retries() workqueue.TypedRateLimiter[reconcile.Request] {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	return &timelyRetries{TypedRateLimiter: backoff, states: &r.states, clock: r.clock}
}

// DefaultWorkers is how many jobs are reconciled concurrently by default.
const DefaultWorkers = 8

// Options are the settings of the controller. The zero value selects the defaults.
type Options struct {
	// Settings apply to the pods of all jobs.
	Settings workload.Settings
	// AggregatorConfig is the AggregatorConfig of jobs that name none: by default
	// di-system/aggregator-config.
	AggregatorConfig types.NamespacedName
	// Drain is the drain time of a removed or failed replica: 10 s by default.
	Drain time.Duration
	// ForceDeleteAfter is how long a pod may be terminating on a node that does not answer before it is
	// force deleted. The default 0 disables force deletion.
	ForceDeleteAfter time.Duration
	// MaxMemory is the maximum memory of a replica after out-of-memory kills: 64Gi by default.
	MaxMemory *resource.Quantity
	// ResizeTimeout is how long a pod may take to be resized in place: a minute by default.
	ResizeTimeout time.Duration
	// NoAllocator means that allocator.Setup is not called. The condition of preemptible jobs then names
	// an external allocator.
	NoAllocator bool
	// Kueue reports whether the queues that jobs name are Kueue's. It is called for jobs that name a
	// queue. If it is nil, the operator ignores queues.
	Kueue func(context.Context) (bool, error)
	// Gangs selects the scheduler of gangs: gang.Auto by default.
	Gangs gang.Setting
	// GangSchedulerName is the scheduler name of gangs that name none. By default it is the provider's
	// default.
	GangSchedulerName string
	// Namespaces are those whose PodGroups are watched: all by default.
	Namespaces scope.Namespaces
	// Workers is how many jobs are reconciled concurrently: DefaultWorkers by default.
	Workers int
	// History is whether jobs stay until the history has recorded their end: no by default.
	History state.History
	// Recorder records the Events of jobs: by default the manager's.
	Recorder events.EventRecorder
	// MetricsNamespaces is how many namespaces metrics name: none by default.
	MetricsNamespaces int
	// Registerer registers the metrics: by default that of controller-runtime.
	Registerer prometheus.Registerer
	// Traces records a span for each reconcile; nil for none.
	Traces trace.TracerProvider
	// MayAct is closed when no other operator acts. Until then the controller writes nothing. Nil if there
	// is no other operator.
	MayAct <-chan struct{}
	// JobVersion returns the version of jobs in owner references: v2alpha1 by default.
	JobVersion func(context.Context) (string, error)
	// Shards are those whose jobs are reconciled; nil for all jobs, by the leader.
	Shards *sharding.Held
}

func (o Options) defaults() Options {
	o.Settings = o.Settings.Defaults()
	o.AggregatorConfig.Namespace = cmp.Or(o.AggregatorConfig.Namespace, names.SystemNamespace)
	o.AggregatorConfig.Name = cmp.Or(o.AggregatorConfig.Name, names.AggregatorConfig)
	o.Drain = cmp.Or(o.Drain, state.DefaultDrain)
	o.Gangs = cmp.Or(o.Gangs, gang.Auto)
	o.History.Timeout = cmp.Or(o.History.Timeout, state.DefaultHistoryTimeout)
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	if o.Registerer == nil {
		o.Registerer = ctrlmetrics.Registry
	}
	if o.JobVersion == nil {
		o.JobVersion = func(context.Context) (string, error) { return v2alpha1.Version, nil }
	}
	return o
}

// Reconciler runs DIJobs of both lifecycles.
type Reconciler struct {
	// client reads from caches and writes to the API server.
	client client.Client
	// live reads from the API server.
	live     client.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	metrics  *jobmetrics.Metrics
	assumed  assumedObjects
	states   jobStates
	// gangs discovers gang schedulers; nil if there are none.
	gangs *discover.Gangs
	// resize discovers whether pods can be resized in place; nil if they cannot.
	resize *discover.Resize
	// workloads reads why jobs wait in queues of Kueue; nil if it is not asked.
	workloads *discover.Workloads
	// queue contains the jobs that wait; nil outside a manager.
	queue queue
}

// Setup adds the controller to a manager. The manager's cache must use controllers.CacheOptions. The
// context ends with the process.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	options = options.defaults()
	if options.Recorder == nil {
		options.Recorder = mgr.GetEventRecorder(names.ControllerName)
	}
	metrics, err := jobmetrics.New(options.Registerer)
	if err != nil {
		return err
	}
	if err := options.Registerer.Register(jobmetrics.NewCounts(jobmetrics.Cached(ctx, mgr, options.Shards))); err != nil {
		return fmt.Errorf("registering the metric of jobs by phase: %w", err)
	}
	metrics.ByNamespace, err = jobmetrics.NewByNamespace(options.Registerer, jobmetrics.NamespaceOptions{
		Limit: options.MetricsNamespaces, GPU: options.Settings.GPUResource, Clock: clock.RealClock{},
		Jobs: jobmetrics.Cached(ctx, mgr, options.Shards), Pods: jobmetrics.CachedPods(ctx, mgr, options.Shards),
	})
	if err != nil {
		return err
	}
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, object, controllers.OwnerIndex, controllers.OwnerName); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", object, err)
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v2alpha1.ScalePlan{}, controllers.UnfinishedPlanIndex, controllers.JobOfUnfinishedPlan); err != nil {
		return fmt.Errorf("indexing unfinished ScalePlans by job: %w", err)
	}
	gangs, followGangs, err := discover.NewGangs(mgr, options.Gangs, options.GangSchedulerName, options.Namespaces)
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v2alpha1.DIJob{}, groupIndex, groupOf); err != nil {
		return fmt.Errorf("indexing jobs by group: %w", err)
	}
	resize, err := discover.NewResize(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	reconciler := &Reconciler{
		client:    mgr.GetClient(),
		live:      mgr.GetAPIReader(),
		recorder:  options.Recorder,
		clock:     clock.RealClock{},
		options:   options,
		metrics:   metrics,
		gangs:     gangs,
		resize:    resize,
		workloads: &discover.Workloads{Mapper: mgr.GetRESTMapper(), Live: mgr.GetAPIReader()},
	}
	watching, err := ctrl.NewControllerManagedBy(mgr).
		For(&v2alpha1.DIJob{}, builder.WithPredicates(options.Shards.Changes(), jobChanges())).
		Watches(&corev1.Pod{}, reconciler.ownedBy(), builder.WithPredicates(podChanges(reconciler.clock))).
		Watches(&corev1.Service{}, reconciler.ownedBy(), builder.WithPredicates(serviceChanges())).
		Watches(&corev1.ConfigMap{}, reconciler.ownedBy(), builder.WithPredicates(existence())).
		Watches(&policyv1.PodDisruptionBudget{}, reconciler.ownedBy(), builder.WithPredicates(budgetChanges())).
		Watches(&v2alpha1.Membership{}, reconciler.ownedBy()).
		Watches(&v2alpha1.ScalePlan{}, handler.EnqueueRequestsFromMapFunc(jobOfPlan), builder.WithPredicates(planChanges())).
		Watches(&v2alpha1.AggregatorConfig{}, handler.EnqueueRequestsFromMapFunc(reconciler.jobsOfConfig)).
		WatchesRawSource(options.Shards.Source(sharding.Jobs(mgr.GetClient()))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: options.Workers, RateLimiter: reconciler.retries(), NewQueue: reconciler.newQueue(mgr.GetLogger()),
			NeedLeaderElection: options.Shards.NeedLeaderElection(),
		}).
		Build(controllers.GateUntil(options.MayAct, options.Shards.Reconciler(tracing.Reconciler(reconciler, options.Traces, reconcileSpan), reconciler.forget)))
	if err != nil {
		return fmt.Errorf("adding the DIJob controller: %w", err)
	}
	followGangs(watching, reconciler.ownedBy())
	return nil
}

// ownedBy enqueues the job that owns an object, if it is of a held shard. A shard that is held later requests all its
// jobs then.
func (r *Reconciler) ownedBy() handler.EventHandler {
	owner := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, name := range controllers.OwnerName(object) {
			if job := (types.NamespacedName{Namespace: object.GetNamespace(), Name: name}); r.options.Shards.Has(job) {
				requests = append(requests, reconcile.Request{NamespacedName: job})
			}
		}
		return requests
	})
	return &ownedHandler{EventHandler: owner, assumed: &r.assumed.owned, states: &r.states}
}
