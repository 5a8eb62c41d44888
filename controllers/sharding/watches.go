// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// keepEverything is how long the pods of all shards are watched after the last read of them.
	keepEverything = 10 * time.Minute
	// settleTime is how long the cache may take to have a list, where its version does not say so.
	settleTime = 2 * time.Second
	// settleInterval is how often the cache is asked for its version.
	settleInterval = 50 * time.Millisecond
	// everythingTimeout is how long the pods of all shards may take to be listed.
	everythingTimeout = time.Minute
)

// Watches select the pods that the cache of an operator watches: not those with the label of a shard that another operator
// reconciles. All others, such as pods of other owners or of an earlier number of shards, have no such label. A nil pointer
// selects all pods.
//
// A watch cannot change its selector. So each change of the shards stops the watch, and refuses to continue it, as if its
// version had expired. The informer then lists the pods again.
type Watches struct {
	clock clock.Clock
	count int

	mutex sync.Mutex
	// followed are the shards whose pods are watched.
	followed map[int]bool
	// everything is set while the pods of all shards are watched, which is needed until a time.
	everything bool
	until      time.Time
	// generation counts the changes of the selector.
	generation int
	// streams are what informers of pods read. There are several if only some namespaces are watched.
	streams []*stream
}

// NewWatches returns watches that leave out the labelled pods of all shards.
func NewWatches(count int, clock clock.Clock) *Watches {
	return &Watches{clock: clock, count: count, followed: map[int]bool{}, generation: 1}
}

// NewInformer returns an informer, which reads only the selected objects if they are pods. It is an option of a cache.
func (w *Watches) NewInformer(
	from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	if _, isPod := object.(*corev1.Pod); !isPod {
		return toolscache.NewSharedIndexInformer(from, object, resync, indexers)
	}
	of := &stream{watches: w, from: toolscache.ToListerWatcherWithContext(from)}
	source := &toolscache.ListWatch{ListWithContextFunc: of.list, WatchFuncWithContext: of.watch}
	informer := toolscache.NewSharedIndexInformer(source, object, resync, indexers)
	of.store = informer.GetStore()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.streams = append(w.streams, of)
	return informer
}

// follow watches the pods of a shard, and reports whether the cache has them.
func (w *Watches) follow(shard int) bool {
	if w == nil {
		return true
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.followed[shard] {
		before := w.selector()
		w.followed[shard] = true
		w.changed(before)
	}
	return w.settled()
}

// leave stops watching the pods of a shard.
func (w *Watches) leave(shard int) {
	if w == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	before := w.selector()
	delete(w.followed, shard)
	w.changed(before)
}

// Everything returns when the cache has the pods of all shards. They are watched for some minutes after the last call.
func (w *Watches) Everything(ctx context.Context) error {
	if w == nil {
		return nil
	}
	timeout := w.clock.After(everythingTimeout)
	for {
		if w.hasEverything() {
			return nil
		}
		select {
		case <-w.clock.After(settleInterval):
		case <-timeout:
			return fmt.Errorf("the cache does not have the pods of all shards after %s", everythingTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Watches) hasEverything() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.until = w.clock.Now().Add(keepEverything)
	if !w.everything {
		before := w.selector()
		w.everything = true
		w.changed(before)
	}
	return w.settled()
}

// narrow stops watching the pods of all shards some minutes after the last read of them.
func (w *Watches) narrow() {
	if w == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.everything && w.clock.Now().After(w.until) {
		before := w.selector()
		w.everything = false
		w.changed(before)
	}
}

// changed stops the watches if they have a selector other than the previous one. The caller holds the mutex.
func (w *Watches) changed(before string) {
	if w.selector() == before {
		return
	}
	w.generation++
	for _, each := range w.streams {
		if each.open != nil {
			each.open.Stop()
		}
	}
}

// selector returns the label selector of pods; empty for all. The caller holds the mutex.
func (w *Watches) selector() string {
	var foreign []string
	for shard := range w.count {
		if !w.followed[shard] {
			foreign = append(foreign, shards.Label(shard, w.count))
		}
	}
	if w.everything || len(foreign) == 0 {
		return ""
	}
	return names.LabelShard + " notin (" + strings.Join(foreign, ",") + ")"
}

// settled reports whether the cache has the pods that the current selector selects. The caller holds the mutex.
func (w *Watches) settled() bool {
	for _, each := range w.streams {
		if each.generation != w.generation || each.version == "" || !each.has() {
			return false
		}
	}
	return len(w.streams) > 0
}
