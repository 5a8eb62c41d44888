// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
)

// together is for how long changes are gathered that are told together.
const together = 100 * time.Millisecond

// watches are what a job's view is fed by.
type watches interface {
	Observe(ctx context.Context, watched cluster.Watched, tell func(cluster.Change)) error
}

// feed gathers what changes of a job.
type feed struct {
	watches watches
	clock   clock.Clock
	job     *v2alpha1.DIJob

	mutex   sync.Mutex
	changes []cluster.Change
	lacks   []string
	// broken are the watches whose connection is down, and why.
	broken map[string]error
	failed error
	// missing counts the watches that have not told all that there is.
	missing int
	changed chan struct{}
}

func newFeed(from watches, clock clock.Clock, job *v2alpha1.DIJob) *feed {
	return &feed{watches: from, clock: clock, job: job, broken: map[string]error{}, changed: make(chan struct{}, 1)}
}

// run reports each change until the context ends or tell returns false. It reports
// first when all that there is is known.
func (f *feed) run(ctx context.Context, tell func(batch) bool) {
	ctx, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	all := map[bool][]cluster.Watched{
		true:  {cluster.WatchJob(f.job.Namespace, f.job.Name), cluster.WatchPods(f.job)},
		false: {cluster.WatchEvents(f.job.Namespace)},
	}
	if f.job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		all[false] = append(all[false], cluster.WatchMembership(f.job))
	}
	f.missing = len(all[true]) + len(all[false])
	for isNeeded, some := range all {
		for _, watched := range some {
			working.Go(func() { f.watch(ctx, watched, isNeeded) })
		}
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		next, isKnown := f.take()
		if !isKnown {
			continue
		}
		for _, one := range next {
			if !tell(one) {
				return
			}
		}
		f.rest(ctx)
	}
}

// rest waits a little, so that changes that come together are told together.
func (f *feed) rest(ctx context.Context) {
	timer := f.clock.NewTimer(together)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// take takes what was gathered, once all that there is is known.
func (f *feed) take() ([]batch, bool) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.failed != nil {
		return []batch{{failed: f.failed}}, true
	}
	if f.missing > 0 {
		return nil, false
	}
	var all []batch
	for _, lack := range f.lacks {
		all = append(all, batch{lack: lack})
	}
	all = append(all, batch{changes: f.changes, broken: f.whyBroken()})
	f.changes, f.lacks = nil, nil
	return all, true
}

// whyBroken says why what is shown may be old; nil where it is not.
func (f *feed) whyBroken() error {
	for _, kind := range slices.Sorted(maps.Keys(f.broken)) {
		return f.broken[kind]
	}
	return nil
}

func (f *feed) watch(ctx context.Context, watched cluster.Watched, isNeeded bool) {
	known := false
	err := f.watches.Observe(ctx, watched, func(change cluster.Change) {
		f.change(func() {
			switch {
			case change.Object != nil:
				f.changes = append(f.changes, change)
			case change.Broken != nil:
				f.broken[watched.Kind()] = change.Broken
			case change.Mended:
				delete(f.broken, watched.Kind())
			case change.Complete:
				known = true
				f.missing--
			}
		})
	})
	if err == nil {
		return
	}
	f.change(func() {
		delete(f.broken, watched.Kind())
		if isNeeded {
			f.failed = err
			return
		}
		f.lacks = append(f.lacks, err.Error())
		if !known {
			f.missing--
		}
	})
}

func (f *feed) change(change func()) {
	f.mutex.Lock()
	change()
	f.mutex.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
