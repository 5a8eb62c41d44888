// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// patiencePerPod is how long news of a job's pods are gathered before the job
	// is looked at, for each pod that it has: some ten times as long as a look
	// takes, so that no job keeps the operator busy by its size alone. A job of
	// ten pods waits a millisecond.
	patiencePerPod = 100 * time.Microsecond
	// longestPatience bounds that.
	longestPatience = 500 * time.Millisecond
)

type (
	queue       = workqueue.TypedRateLimitingInterface[reconcile.Request]
	createEvent = event.TypedCreateEvent[client.Object]
	updateEvent = event.TypedUpdateEvent[client.Object]
	deleteEvent = event.TypedDeleteEvent[client.Object]
)

// ownedHandler hands on news of what jobs own, those of one job's pods together,
// and tells the journal what the caches have.
type ownedHandler struct {
	handler.EventHandler
	journal *journal
}

// Create implements handler.EventHandler.
func (h *ownedHandler) Create(ctx context.Context, created createEvent, into queue) {
	h.note(created.Object, false)
	h.EventHandler.Create(ctx, created, h.gather(created.Object, into))
}

// Update implements handler.EventHandler.
func (h *ownedHandler) Update(ctx context.Context, updated updateEvent, into queue) {
	h.note(updated.ObjectNew, false)
	h.EventHandler.Update(ctx, updated, h.gather(updated.ObjectNew, into))
}

// Delete implements handler.EventHandler.
func (h *ownedHandler) Delete(ctx context.Context, deleted deleteEvent, into queue) {
	h.note(deleted.Object, true)
	h.EventHandler.Delete(ctx, deleted, h.gather(deleted.Object, into))
}

func (h *ownedHandler) note(object client.Object, gone bool) {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == jobKind {
			h.journal.saw(types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}, object, gone)
		}
	}
}

// gather lets the news of pods wait for more. Of other objects there are few, or
// somebody waits for what is made of them.
func (h *ownedHandler) gather(object client.Object, into queue) queue {
	priorities, hasPriorities := into.(priorityqueue.PriorityQueue[reconcile.Request])
	if _, isPod := object.(*corev1.Pod); isPod && hasPriorities {
		return &gatheringQueue{PriorityQueue: priorities, journal: h.journal}
	}
	return into
}

// gatheringQueue lets a job wait for more news, the longer the more pods it
// has. One that waits already does not wait longer.
type gatheringQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	journal *journal
}

// Add implements workqueue.TypedInterface.
func (q *gatheringQueue) Add(job reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, job)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *gatheringQueue) AddWithOpts(options priorityqueue.AddOpts, jobs ...reconcile.Request) {
	for _, job := range jobs {
		options.After = patienceFor(q.journal.size(job.NamespacedName))
		q.PriorityQueue.AddWithOpts(options, job)
	}
}

// timelyRetries tries a job again when it was to be looked at anyway, if that is
// sooner: what waits for its time, such as counts, a deadline or a drain, does
// not wait for a quota.
type timelyRetries struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	journal *journal
	now     func() time.Time
}

// When implements workqueue.TypedRateLimiter.
func (t *timelyRetries) When(job reconcile.Request) time.Duration {
	delay := t.TypedRateLimiter.When(job)
	if left := t.journal.due(job.NamespacedName).Sub(t.now()); left > 0 {
		return min(delay, left)
	}
	return delay
}

// newQueue makes the queue of jobs as controller-runtime does, and remembers it.
func (r *DIJobReconciler) newQueue(log logr.Logger) func(string, workqueue.TypedRateLimiter[reconcile.Request]) queue {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) queue {
		r.queue = priorityqueue.New(name, func(options *priorityqueue.Opts[reconcile.Request]) {
			options.Log, options.RateLimiter = log.WithValues("controller", name), limiter
		})
		return r.queue
	}
}

// othersWait reports whether other jobs wait to be looked at.
func (r *DIJobReconciler) othersWait() bool {
	return r.queue != nil && r.queue.Len() > 0
}

func patienceFor(pods int) time.Duration {
	return min(time.Duration(pods)*patiencePerPod, longestPatience)
}
