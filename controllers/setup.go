// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
)

const (
	// firstRetry and lastRetry bound the delays after which a job is tried again
	// that could not be brought on, such as one whose pods a quota refuses: nobody
	// tells when there is room again.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// retries returns the delays between the attempts at one job.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}

// DefaultWorkers is how many jobs are reconciled at a time where nothing else is said.
const DefaultWorkers = 8

// Options are the settings of the controllers. The zero value is the default.
type Options struct {
	// Settings are what all jobs' pods are given.
	Settings workload.Settings
	// AggregatorConfig is the one of jobs that name none: by default
	// di-system/aggregator-config.
	AggregatorConfig types.NamespacedName
	// Drain is how long a replica that was removed or reported lives on: 10 s by default.
	Drain time.Duration
	// Workers is how many jobs are reconciled at a time: DefaultWorkers by default.
	Workers int
	// Registerer takes the metrics: by default that of controller-runtime.
	Registerer prometheus.Registerer
}

func (o Options) defaults() Options {
	o.Settings = o.Settings.Defaults()
	o.AggregatorConfig.Namespace = cmp.Or(o.AggregatorConfig.Namespace, names.SystemNamespace)
	o.AggregatorConfig.Name = cmp.Or(o.AggregatorConfig.Name, names.AggregatorConfig)
	o.Drain = cmp.Or(o.Drain, lifecycle.DefaultDrain)
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	if o.Registerer == nil {
		o.Registerer = metrics.Registry
	}
	return o
}

// DIJobReconciler runs DIJobs of both lifecycles.
type DIJobReconciler struct {
	// client reads from caches and writes to the API server.
	client client.Client
	// live reads from the API server.
	live     client.Reader
	recorder events.EventRecorder
	now      func() time.Time
	options  Options
	metrics  *jobMetrics
}

// Setup adds the controllers to a manager, whose cache is to be made with
// CacheOptions. The context ends with the process.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	options = options.defaults()
	jobMetrics, err := newJobMetrics(options.Registerer)
	if err != nil {
		return err
	}
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.Service{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, object, ownerIndex, controllerUID); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", object, err)
		}
	}
	reconciler := &DIJobReconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder(names.ControllerName),
		now:      time.Now,
		options:  options,
		metrics:  jobMetrics,
	}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&v2alpha1.DIJob{}, builder.WithPredicates(jobChanges())).
		Owns(&corev1.Pod{}, builder.WithPredicates(podChanges(reconciler.now))).
		Owns(&corev1.Service{}, builder.WithPredicates(comingsAndGoings())).
		Owns(&v2alpha1.Membership{}).
		Watches(&v2alpha1.AggregatorConfig{}, handler.EnqueueRequestsFromMapFunc(reconciler.jobsOfConfig)).
		WithOptions(controller.Options{MaxConcurrentReconciles: options.Workers, RateLimiter: retries()}).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("adding the DIJob controller: %w", err)
	}
	return nil
}
