// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/telemetry"
)

const (
	// inFlight bounds the jobs that are let go at a time.
	inFlight = 8
	// firstDelay and maxDelay are the times between attempts for one job.
	firstDelay = 100 * time.Millisecond
	maxDelay   = 30 * time.Second
)

// owner is the field manager of what is removed.
const owner = client.FieldOwner("di-history")

// The results of an attempt to let a job go.
const (
	resultReleased = "released"
	resultFailed   = "failed"
)

// Metrics count the jobs that are let go.
type Metrics struct {
	telemetry.Set
	jobs *prometheus.CounterVec
}

// NewMetrics returns metrics that the registerer has.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	m.jobs = m.CounterFromZero(telemetry.Metric{
		Name: "di_orchestrator_history_releases_total", Unit: "attempts",
		Help:   "Attempts to let go of deleted jobs whose end is recorded, with history.require, by result; failed ones are repeated.",
		Labels: []telemetry.Label{{Name: "result", Values: []string{resultReleased, resultFailed}}},
	})
	if err := registerer.Register(m); err != nil {
		return nil, fmt.Errorf("registering the metrics of releases: %w", err)
	}
	return m, nil
}

// Releaser removes the finalizer from jobs.
type Releaser struct {
	client  client.Client
	metrics *Metrics
	log     logr.Logger
	queue   workqueue.TypedRateLimitingInterface[job]
}

// job is one job: another one may have its name later.
type job struct {
	key types.NamespacedName
	uid types.UID
}

// New returns a Releaser, whose client reads jobs from a cache.
func New(api client.Client, metrics *Metrics, clock clock.WithTicker, log logr.Logger) *Releaser {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[job](firstDelay, maxDelay)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[job]{Clock: clock})
	return &Releaser{client: api, metrics: metrics, log: log, queue: queue}
}

// NeedLeaderElection restricts it to the leader, which records.
func (*Releaser) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (r *Releaser) Start(ctx context.Context) error {
	var group sync.WaitGroup
	for range inFlight {
		group.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
	return nil
}

// Release lets go of a job whose end is recorded. It never waits.
func (r *Releaser) Release(key types.NamespacedName, uid types.UID) { r.queue.Add(job{key, uid}) }

// next lets one job go. It reports false at the end.
func (r *Releaser) next(ctx context.Context) bool {
	item, isOver := r.queue.Get()
	if isOver {
		return false
	}
	defer r.queue.Done(item)
	switch err := r.release(ctx, item); {
	case ctx.Err() != nil:
		return false
	case err != nil:
		r.metrics.jobs.WithLabelValues(resultFailed).Inc()
		r.log.Error(err, "Cannot let go of a deleted job; retrying")
		r.queue.AddRateLimited(item)
	default:
		r.queue.Forget(item)
	}
	return true
}

// release removes the finalizer, unless that is done. The patch holds for the cached version only, because it
// replaces a list that others write, too.
func (r *Releaser) release(ctx context.Context, item job) error {
	found, err := controllers.Find(ctx, r.client, item.key, &v2alpha1.DIJob{})
	if err != nil {
		return err
	}
	if found == nil || found.UID != item.uid || found.DeletionTimestamp.IsZero() {
		return nil
	}
	free := found.DeepCopy()
	if !controllerutil.RemoveFinalizer(free, names.FinalizerHistory) {
		return nil
	}
	patch := client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.client.Patch(ctx, free, patch, owner)); err != nil {
		return fmt.Errorf("removing finalizer %s from job %s/%s: %w", names.FinalizerHistory, item.key.Namespace, item.key.Name, err)
	}
	r.metrics.jobs.WithLabelValues(resultReleased).Inc()
	return nil
}
