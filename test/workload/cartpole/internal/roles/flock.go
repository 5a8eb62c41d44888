// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// flock is the workers that a leader knows of.
type flock struct {
	pool   *train.Pool
	group  *train.Group
	dialer *peer.Dialer
	log    *slog.Logger
	retry  time.Duration
	// patience bounds the telling of the end.
	patience time.Duration

	mu       sync.Mutex // protects all below
	members  map[string]bool
	untold   map[string]bool // workers that do not know of the end
	finished bool
}

func newFlock(w *worker, p *patience) *flock {
	f := &flock{
		dialer: w.dialer, log: w.system.Log, retry: w.interval, patience: w.finishTimeout,
		members: map[string]bool{}, untold: map[string]bool{},
	}
	for _, address := range w.place.others() {
		f.untold[address] = true
	}
	f.pool = train.NewPool(p.of(f.lose), w.system.Now)
	f.group = train.NewGroup(p.of(f.lose), w.system.Now)
	return f
}

// receive takes a worker in, or tells it that training has ended.
func (f *flock) receive(_ context.Context, a peer.Announcement) (peer.Reception, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.finished {
		delete(f.untold, a.Address)
		return peer.Reception{Finished: true}, nil
	}
	if f.members[a.Address] {
		return peer.Reception{}, nil
	}
	client := f.dialer.Client(a.Address)
	switch a.Task {
	case taskCollector:
		f.pool.Add(a.Address, train.Collecting, client)
	case taskEvaluator:
		f.pool.Add(a.Address, train.Evaluating, client)
	case taskLearner:
		f.group.Add(a.Address, client)
	default:
		return peer.Reception{}, fmt.Errorf("%w: got %q", errUnknownTask, a.Task)
	}
	f.members[a.Address], f.untold[a.Address] = true, true
	f.log.Info("took a worker in", "task", a.Task, "rank", a.Rank, "address", a.Address)
	return peer.Reception{}, nil
}

// lose lets a worker go that does not answer; it may announce itself again.
func (f *flock) lose(address string, err error) {
	f.log.Warn("a worker is lost", "address", address, "error", err)
	f.pool.Remove(address)
	f.group.Remove(address)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, address)
}

// finish tells all workers that training has ended, late ones too: the job
// succeeds when all of its workers have.
func (f *flock) finish(ctx context.Context) {
	f.mu.Lock()
	f.finished = true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	for {
		untold := f.tellAll(ctx)
		if len(untold) == 0 {
			return
		}
		f.log.Info("workers do not know of the end yet", "addresses", untold)
		if pause(ctx, f.retry) != nil {
			f.log.Warn("workers do not know of the end", "addresses", untold)
			return
		}
	}
}

func (f *flock) tellAll(ctx context.Context) []string {
	var wait sync.WaitGroup
	for _, address := range f.rest() {
		wait.Go(func() {
			if f.dialer.Client(address).Finish(ctx) != nil {
				return // tried again, and reported at the end
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.untold, address)
		})
	}
	wait.Wait()
	return f.rest()
}

func (f *flock) rest() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.untold))
}
