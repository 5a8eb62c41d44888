// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharding lets several operators run jobs at the same time. Each holds the Leases of some shards,
// and reconciles the jobs of these only. Package shards decides.
package sharding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/internal/names"
)

// Held are the shards whose jobs this process reconciles. A nil pointer stands for the only shard, whose
// controllers run in the leader.
type Held struct {
	// shards are by index. A reconcile holds the read lock of its shard.
	shards []shard
	mutex  sync.Mutex
	// changed are called with a shard that is held from now on, or no longer. mutex guards them.
	changed []func(shard int)
}

type shard struct {
	sync.RWMutex
	// isHeld changes while no reconcile holds the lock. Watch events read it without the lock, so they do not
	// wait for a reconcile that hangs.
	isHeld atomic.Bool
}

// NewHeld returns a number of shards. None is held.
func NewHeld(count int) *Held { return &Held{shards: make([]shard, count)} }

// NeedLeaderElection is the setting of controllers of jobs.
func (h *Held) NeedLeaderElection() *bool {
	if h == nil {
		return nil
	}
	return ptr.To(false)
}

// Has reports whether this process reconciles a job.
func (h *Held) Has(job types.NamespacedName) bool {
	if h == nil {
		return true
	}
	return h.has(shards.Of(job, len(h.shards)))
}

// has reports whether this process reconciles the jobs of a shard.
func (h *Held) has(index int) bool { return h.shards[index].isHeld.Load() }

// Mark adds the label of a job's shard to a new pod of the job.
func (h *Held) Mark(pod client.Object, job types.NamespacedName) {
	if h == nil {
		return
	}
	labels := maps.Clone(pod.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[names.LabelShard] = h.Label(job)
	pod.SetLabels(labels)
}

// Label returns the label of a job's shard; "" if there is only one.
func (h *Held) Label(job types.NamespacedName) string {
	if h == nil {
		return ""
	}
	return shards.Label(shards.Of(job, len(h.shards)), len(h.shards))
}

// set starts or stops to reconcile the jobs of a shard, and reports whether that is a change. If it stops,
// no reconcile of these jobs runs afterwards.
func (h *Held) set(index int, isHeld bool) bool {
	of := &h.shards[index]
	of.Lock()
	isChanged := of.isHeld.Swap(isHeld) != isHeld
	of.Unlock()
	if !isChanged {
		return false
	}
	h.mutex.Lock()
	changed := slices.Clone(h.changed)
	h.mutex.Unlock()
	for _, call := range changed {
		call(index)
	}
	return true
}

// Changes returns a predicate that drops creations and updates of jobs of other shards. A shard that is held later requests
// all its jobs then, from a cache that has these changes. A deletion passes, because what is known of a job is then forgotten.
func (h *Held) Changes() predicate.Predicate {
	isHeld := func(object client.Object) bool { return h.Has(client.ObjectKeyFromObject(object)) }
	return predicate.Funcs{
		CreateFunc: func(created event.CreateEvent) bool { return isHeld(created.Object) },
		UpdateFunc: func(updated event.UpdateEvent) bool { return isHeld(updated.ObjectNew) },
	}
}

// Reconciler returns a reconciler that reconciles only jobs of held shards. It forgets the others, unless forget is nil.
func (h *Held) Reconciler(of reconcile.Reconciler, forget func(types.NamespacedName)) reconcile.Reconciler {
	if h == nil {
		return of
	}
	return &held{Reconciler: of, held: h, forget: forget}
}

type held struct {
	reconcile.Reconciler
	held   *Held
	forget func(types.NamespacedName)
}

// Reconcile implements reconcile.Reconciler.
func (r *held) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	of := &r.held.shards[shards.Of(request.NamespacedName, len(r.held.shards))]
	of.RLock()
	defer of.RUnlock()
	if !of.isHeld.Load() {
		if r.forget != nil {
			r.forget(request.NamespacedName)
		}
		return ctrl.Result{}, nil
	}
	return r.Reconciler.Reconcile(ctx, request)
}

// Source requests the jobs of a shard when it is held from now on, or no longer.
func (h *Held) Source(list func(context.Context) ([]types.NamespacedName, error)) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		if h == nil {
			return nil
		}
		request := func(index int) {
			jobs, err := list(ctx)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(fmt.Errorf("listing the jobs of shard %d: %w", index+1, err), "Cannot request the jobs of a shard")
			}
			for _, job := range jobs {
				if shards.Of(job, len(h.shards)) == index {
					queue.Add(reconcile.Request{NamespacedName: job})
				}
			}
		}
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.changed = append(h.changed, request)
		return nil
	})
}

// Jobs lists all jobs in a cache.
func Jobs(cached client.Reader) func(context.Context) ([]types.NamespacedName, error) {
	return func(ctx context.Context) ([]types.NamespacedName, error) {
		var list v2alpha1.DIJobList
		if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing jobs: %w", err)
		}
		jobs := make([]types.NamespacedName, len(list.Items))
		for i := range list.Items {
			jobs[i] = client.ObjectKeyFromObject(&list.Items[i])
		}
		return jobs, nil
	}
}
