// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/failure"
)

// maxCatchUp bounds the time in which a reopened watch delivers the events that were missed.
const maxCatchUp = 250 * time.Millisecond

// Watches follows whether a watch keeps the cache current, for each resource in answers. While a watch is
// broken, the cache is stale. A client that another server answered meanwhile would see its list go
// backwards. Wrap observes the watches on their way to the API server and makes no further calls. A nil
// Watches is always current.
type Watches struct {
	log       logr.Logger
	clock     clock.PassiveClock
	mutex     sync.Mutex
	resources map[string]*watched
	// changed closes when a watch opens or ends.
	changed chan struct{}
}

// watched is the state of one resource's watches.
type watched struct {
	// need is how many watches keep the cache current: one, or one for each namespace.
	need, open int
	// since is when the last needed watch opened, or when one of them ended.
	since time.Time
	// missed is how long a needed watch was not open before.
	missed time.Duration
}

// isCurrent reports whether all needed watches are open.
func (w *watched) isCurrent() bool { return w.open >= w.need }

// NewWatches returns watches of all WatchedResources. None of them is open.
func NewWatches(log logr.Logger, clock clock.PassiveClock) *Watches {
	w := &Watches{log: log, clock: clock, resources: map[string]*watched{}, changed: make(chan struct{})}
	for _, resource := range WatchedResources() {
		w.resources[resource] = &watched{need: 1, since: clock.Now()}
	}
	return w
}

// Need sets how many watches of each resource keep the cache current, before the first one opens.
func (w *Watches) Need(count func(resource string) int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for resource, state := range w.resources {
		state.need = count(resource)
	}
}

// WatchedResources returns the resources whose watches are followed. It omits nodes: the usual number of
// GPUs rarely changes, and a stale number does no harm.
func WatchedResources() []string {
	return []string{"dijobs", "memberships", "aggregatorconfigs", "pods"}
}

// State returns, by resource, whether a watch is open.
func (w *Watches) State() map[string]bool {
	open := map[string]bool{}
	if w == nil {
		return open
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for resource, state := range w.resources {
		open[resource] = state.isCurrent()
	}
	return open
}

// Current reports whether the cache is current.
func (w *Watches) Current() bool {
	if w == nil {
		return true
	}
	pause, _ := w.pause()
	return pause <= 0
}

// Broken returns how long a watch has been broken; 0 if none is broken.
func (w *Watches) Broken() time.Duration {
	if w == nil {
		return 0
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var longest time.Duration
	for _, state := range w.resources {
		if !state.isCurrent() {
			longest = max(longest, w.clock.Since(state.since), 1)
		}
	}
	return longest
}

// undisturbed returns a time minus the last outage of the watches, if the outage lasted until that time or
// ended shortly before.
func (w *Watches) undisturbed(at time.Time) time.Time {
	if w == nil {
		return at
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	longest := time.Duration(0)
	for _, state := range w.resources {
		begun, ended := state.since.Add(-state.missed), state.since
		if !state.isCurrent() {
			begun, ended = state.since, at
		}
		if ended.After(at) {
			ended = at
		}
		if at.Sub(ended) <= membership.RepeatWindow {
			longest = max(longest, ended.Sub(begun))
		}
	}
	return at.Add(-longest)
}

// Wait blocks until all watches are open and have had time to deliver missed events. That time equals the
// outage, up to maxCatchUp.
func (w *Watches) Wait(ctx context.Context) error {
	if w == nil {
		return nil
	}
	for {
		pause, changed := w.pause()
		if pause == 0 {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return failure.TimedOut(fmt.Errorf("a watch is broken: %w", context.Cause(ctx)))
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pause returns the delay before the next check, and a channel that closes when the state changes. The
// delay is 0 if the cache is current.
func (w *Watches) pause() (time.Duration, <-chan struct{}) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var pause time.Duration
	for _, state := range w.resources {
		if !state.isCurrent() {
			return time.Minute, w.changed
		}
		pause = max(pause, min(state.missed, maxCatchUp)-w.clock.Since(state.since))
	}
	return pause, w.changed
}

func (w *Watches) opened(resource string) {
	w.change(resource, func(state *watched) {
		if state.open++; state.open == state.need {
			now := w.clock.Now()
			state.missed, state.since = now.Sub(state.since), now
		}
	})
}

func (w *Watches) closed(resource string) {
	w.change(resource, func(state *watched) {
		if state.open--; state.open == state.need-1 {
			state.since = w.clock.Now()
		}
	})
}

func (w *Watches) change(resource string, change func(*watched)) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state, needed := w.resources[resource]; needed {
		change(state)
		close(w.changed)
		w.changed = make(chan struct{})
	}
}
