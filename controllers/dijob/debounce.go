// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
)

const (
	// debouncePerPod is how long the events of a job's pods are debounced, per pod of the job. The time is
	// about ten times the duration of a reconcile, so no job keeps the operator busy by its size alone. A
	// job of ten pods waits a millisecond.
	debouncePerPod = 100 * time.Microsecond
	// maxDebounce bounds the sum.
	maxDebounce = 500 * time.Millisecond
)

type (
	queue       = workqueue.TypedRateLimitingInterface[reconcile.Request]
	createEvent = event.TypedCreateEvent[client.Object]
	updateEvent = event.TypedUpdateEvent[client.Object]
	deleteEvent = event.TypedDeleteEvent[client.Object]
)

// ownedHandler enqueues the job that owns the object of an event, once for the events of many pods. It
// confirms assumed objects that the caches now have.
type ownedHandler struct {
	handler.EventHandler
	assumed *assume.Cache
	states  *jobStates
}

// Create implements handler.EventHandler.
func (h *ownedHandler) Create(ctx context.Context, created createEvent, into queue) {
	h.confirm(created.Object, false)
	h.EventHandler.Create(ctx, created, h.debounce(created.Object, into))
}

// Update implements handler.EventHandler.
func (h *ownedHandler) Update(ctx context.Context, updated updateEvent, into queue) {
	h.confirm(updated.ObjectNew, false)
	if !slices.Equal(controllers.OwnerUID(updated.ObjectOld), controllers.OwnerUID(updated.ObjectNew)) {
		h.miss(updated.ObjectOld)
	}
	h.EventHandler.Update(ctx, updated, h.debounce(updated.ObjectNew, into))
}

// Delete implements handler.EventHandler.
func (h *ownedHandler) Delete(ctx context.Context, deleted deleteEvent, into queue) {
	h.confirm(deleted.Object, true)
	if _, isPod := deleted.Object.(*corev1.Pod); isPod && deleted.Object.GetDeletionTimestamp() == nil {
		// It was deleted without a grace period, or the watch no longer selects it.
		h.miss(deleted.Object)
	}
	h.EventHandler.Delete(ctx, deleted, h.debounce(deleted.Object, into))
}

// miss records an object that its job no longer has in the cache.
func (h *ownedHandler) miss(object client.Object) {
	for _, name := range controllers.OwnerName(object) {
		h.states.miss(types.NamespacedName{Namespace: object.GetNamespace(), Name: name}, object)
	}
}

// confirm passes the object of a watch event to the assume cache of its job.
func (h *ownedHandler) confirm(object client.Object, isDeleted bool) {
	for _, owner := range object.GetOwnerReferences() {
		job := types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}
		switch {
		case owner.Kind != controllers.JobKind:
		case isDeleted:
			h.assumed.ConfirmDeleted(job, object)
		default:
			h.assumed.Confirm(job, object)
		}
	}
}

// debounce debounces the events of pods. It does not debounce other objects: there are few of them, or a
// client waits for their effect.
func (h *ownedHandler) debounce(object client.Object, into queue) queue {
	priorities, hasPriorities := into.(priorityqueue.PriorityQueue[reconcile.Request])
	if _, isPod := object.(*corev1.Pod); isPod && hasPriorities {
		return &debouncingQueue{PriorityQueue: priorities, states: h.states}
	}
	return into
}

// debouncingQueue adds a job after a delay that grows with its number of pods. A job that is already
// waiting does not wait longer.
type debouncingQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	states *jobStates
}

// Add implements workqueue.TypedInterface.
func (q *debouncingQueue) Add(job reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, job)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *debouncingQueue) AddWithOpts(options priorityqueue.AddOpts, jobs ...reconcile.Request) {
	for _, job := range jobs {
		options.After = debounceOf(q.states.get(job.NamespacedName).pods)
		q.PriorityQueue.AddWithOpts(options, job)
	}
}

// timelyRetries bounds the backoff of a job by the time at which the job is due in any case. A deadline, a
// drain or a delayed status therefore does not wait for a quota.
type timelyRetries struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	states *jobStates
	clock  clock.PassiveClock
}

// When implements workqueue.TypedRateLimiter.
func (t *timelyRetries) When(job reconcile.Request) time.Duration {
	delay := t.TypedRateLimiter.When(job)
	if left := t.states.get(job.NamespacedName).due.Sub(t.clock.Now()); left > 0 {
		return min(delay, left)
	}
	return delay
}

// newQueue creates the queue of jobs in the same way as controller-runtime, and keeps it.
func (r *Reconciler) newQueue(log logr.Logger) func(string, workqueue.TypedRateLimiter[reconcile.Request]) queue {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) queue {
		r.queue = priorityqueue.New(name, func(options *priorityqueue.Opts[reconcile.Request]) {
			options.Log, options.RateLimiter = log.WithValues("controller", name), limiter
		})
		return r.queue
	}
}

// othersWait reports whether other jobs wait in the queue.
func (r *Reconciler) othersWait() bool {
	return r.queue != nil && r.queue.Len() > 0
}

// debounceOf returns how long the events of a job with a number of pods are debounced.
func debounceOf(pods int) time.Duration {
	return min(time.Duration(pods)*debouncePerPod, maxDebounce)
}
