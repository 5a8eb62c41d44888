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
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// firstRetry and lastRetry bound the delays after which a job is tried again
	// that could not be brought on. What the API server refused to create waits longer.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// retries returns the delays between the attempts at one job.
func (r *Reconciler) retries() workqueue.TypedRateLimiter[reconcile.Request] {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	return &timelyRetries{TypedRateLimiter: backoff, states: &r.states, now: r.now}
}

// DefaultWorkers is how many jobs are reconciled at a time where nothing else is said.
const DefaultWorkers = 8

// Options are the settings of the controller. The zero value is the default.
type Options struct {
	// Settings are what all jobs' pods are given.
	Settings workload.Settings
	// AggregatorConfig is the one of jobs that name none: by default
	// di-system/aggregator-config.
	AggregatorConfig types.NamespacedName
	// Drain is how long a replica that was removed or reported lives on: 10 s by default.
	Drain time.Duration
	// ForceDeleteAfter is how long a pod that does not go from a node that does not answer
	// is left before it is deleted by force; 0, the default, for ever.
	ForceDeleteAfter time.Duration
	// NoAllocator says that allocator.Setup is not called: preemptible jobs then say
	// that they wait for another.
	NoAllocator bool
	// Kueue reports whether the queues that jobs name are Kueue's; it is asked for jobs
	// that name one. By default they are not.
	Kueue func(context.Context) (bool, error)
	// Gangs is which scheduler the gangs of worker-led jobs are left to: gang.Auto by default.
	Gangs gang.Setting
	// GangSchedulerName is the scheduler of pods of gangs that name none, where it
	// goes by another name than usual.
	GangSchedulerName string
	// Workers is how many jobs are reconciled at a time: DefaultWorkers by default.
	Workers int
	// Recorder takes the Events of jobs: by default the manager's.
	Recorder events.EventRecorder
	// Registerer takes the metrics: by default that of controller-runtime.
	Registerer prometheus.Registerer
	// Traces makes a span of each pass over a job; nil for none.
	Traces trace.TracerProvider
	// MayAct is closed when no other operator acts any more; until then nothing is
	// written. Nil where there is none.
	MayAct <-chan struct{}
	// JobVersion tells the version in which owner references name jobs: by default
	// v2alpha1.
	JobVersion func(context.Context) (string, error)
}

func (o Options) defaults() Options {
	o.Settings = o.Settings.Defaults()
	o.AggregatorConfig.Namespace = cmp.Or(o.AggregatorConfig.Namespace, names.SystemNamespace)
	o.AggregatorConfig.Name = cmp.Or(o.AggregatorConfig.Name, names.AggregatorConfig)
	o.Drain = cmp.Or(o.Drain, state.DefaultDrain)
	o.Gangs = cmp.Or(o.Gangs, gang.Auto)
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	if o.Registerer == nil {
		o.Registerer = ctrlmetrics.Registry
	}
	if o.JobVersion == nil {
		o.JobVersion = func(context.Context) (string, error) { return v2alpha1.Version, nil }
	}
	if o.Kueue == nil {
		o.Kueue = func(context.Context) (bool, error) { return false, nil }
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
	now      func() time.Time
	options  Options
	metrics  *jobmetrics.Metrics
	assumed  assumedObjects
	states   jobStates
	// gangs follows the schedulers of gangs; nil where there are none.
	gangs *discover.Gangs
	// queue has the jobs that wait; nil where none can.
	queue queue
}

// Setup adds the controller to a manager, whose cache must be made with
// controllers.CacheOptions. The context ends with the process.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	options = options.defaults()
	if options.Recorder == nil {
		options.Recorder = mgr.GetEventRecorder(names.ControllerName)
	}
	metrics, err := jobmetrics.New(options.Registerer)
	if err != nil {
		return err
	}
	if err := options.Registerer.Register(jobmetrics.NewCounts(jobmetrics.Cached(ctx, mgr))); err != nil {
		return fmt.Errorf("registering the metric of jobs by phase: %w", err)
	}
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, object, controllers.OwnerIndex, controllers.OwnerName); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", object, err)
		}
	}
	gangs, followGangs, err := discover.NewGangs(mgr, options.Gangs, options.GangSchedulerName)
	if err != nil {
		return err
	}
	reconciler := &Reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: options.Recorder,
		now:      clock.RealClock{}.Now,
		options:  options,
		metrics:  metrics,
		gangs:    gangs,
	}
	watching, err := ctrl.NewControllerManagedBy(mgr).
		For(&v2alpha1.DIJob{}, builder.WithPredicates(jobChanges())).
		Watches(&corev1.Pod{}, reconciler.ownedBy(mgr), builder.WithPredicates(podChanges(reconciler.now))).
		Watches(&corev1.Service{}, reconciler.ownedBy(mgr), builder.WithPredicates(comingsAndGoings())).
		Watches(&corev1.ConfigMap{}, reconciler.ownedBy(mgr), builder.WithPredicates(comingsAndGoings())).
		Watches(&v2alpha1.Membership{}, reconciler.ownedBy(mgr)).
		Watches(&v2alpha1.AggregatorConfig{}, handler.EnqueueRequestsFromMapFunc(reconciler.jobsOfConfig)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: options.Workers, RateLimiter: reconciler.retries(), NewQueue: reconciler.newQueue(mgr.GetLogger()),
		}).
		Build(controllers.GateUntil(options.MayAct, tracing.Reconciler(reconciler, options.Traces, spanOfPass)))
	if err != nil {
		return fmt.Errorf("adding the DIJob controller: %w", err)
	}
	followGangs(watching, reconciler.ownedBy(mgr))
	return nil
}

// ownedBy enqueues the job that owns an object, together with other news of it.
func (r *Reconciler) ownedBy(mgr ctrl.Manager) handler.EventHandler {
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v2alpha1.DIJob{}, handler.OnlyControllerOwner())
	return &ownedHandler{EventHandler: owner, assumed: &r.assumed.owned, states: &r.states}
}
