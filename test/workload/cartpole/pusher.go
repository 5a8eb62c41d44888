// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// pusher is a worker that updates the parameter servers. It counts its updates, and at its end
// compares them with what the servers counted.
type pusher struct {
	*stateful
	least    int64
	interval time.Duration
	finish   chan struct{}

	// pushing protects all below, and is held during an update.
	pushing sync.Mutex
	// used is the membership whose servers are used.
	used   diserver.Membership
	counts [shards]int64
	total  int64
}

func runPusher(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("pusher", flag.ContinueOnError)
	w := &pusher{stateful: newStateful(p, flags), finish: make(chan struct{})}
	flags.Int64Var(&w.least, "updates", 1000, "least number of updates")
	flags.DurationVar(&w.interval, "interval", 5*time.Millisecond, "pause between updates")
	waits := flags.Bool("wait", false, "push until POST /finish")
	if err := p.parse(flags, args); err != nil {
		return err
	}
	if err := w.join(); err != nil {
		return err
	}
	end := sync.OnceFunc(func() { close(w.finish) })
	if !*waits {
		end()
	}
	mux := newMux(identity{Name: w.name})
	handle(mux, "POST /finish", func(context.Context, empty) (empty, error) { end(); return empty{}, nil })
	handle(mux, "GET /pushed", func(context.Context, empty) (int64, error) { return w.pushed(), nil })
	ports := map[int]http.Handler{workerPort: mux}
	return w.run(ctx, ports, w.follow, func(ctx context.Context) error { return w.apply(ctx, w.use) }, w.push)
}

// use switches to the servers of a membership. No update is in flight meanwhile.
func (w *pusher) use(_ context.Context, list diserver.Membership) error {
	w.pushing.Lock()
	defer w.pushing.Unlock()
	w.used = list
	return nil
}

func (w *pusher) pushed() int64 {
	w.pushing.Lock()
	defer w.pushing.Unlock()
	return w.total
}

// push pushes updates until it has pushed enough and may finish, and checks that none was lost.
func (w *pusher) push(ctx context.Context) error {
	for {
		select {
		case <-w.finish:
			if w.pushed() >= w.least {
				return w.check(ctx)
			}
		default:
		}
		err := w.one(ctx)
		switch {
		case errors.Is(err, errDiverged):
			return fmt.Errorf("an update was lost: %w", err)
		case err != nil:
			w.log.Debug("an update is repeated", "error", err)
		}
		if err := pause(ctx, w.interval); err != nil {
			return err
		}
	}
}

// one makes the next update. It is repeated with the same number if it fails.
func (w *pusher) one(ctx context.Context) error {
	w.pushing.Lock()
	defer w.pushing.Unlock()
	shard := int(w.total % shards)
	owner, isThere := ownerOf(w.used, shard)
	if !isThere || stateOf(w.used, w.name) != stateActive {
		return errNotReady
	}
	next := update{Shard: shard, Pusher: w.name, Number: w.counts[shard] + 1}
	if _, err := call[empty](ctx, w.client, http.MethodPost, "http://"+owner.Address+"/push", next); err != nil {
		return err
	}
	w.counts[shard]++
	w.total++
	return nil
}

// check compares the pushed updates with those that the servers hold. Shards may be moving, so it
// repeats the comparison.
func (w *pusher) check(ctx context.Context) error {
	for {
		counted, err := w.counted(ctx)
		if err == nil && counted == w.pushed() {
			_, err = fmt.Fprintf(w.stdout, "result=complete pushed=%d counted=%d version=%d\n", w.pushed(), counted, w.current().Version)
			return err
		}
		w.log.Warn("the servers hold another number of updates", "pushed", w.pushed(), "counted", counted, "error", err)
		if err := pause(ctx, retryEvery); err != nil {
			return err
		}
	}
}

// counted returns how many updates of this pusher the active servers hold.
func (w *pusher) counted(ctx context.Context) (int64, error) {
	active, _ := serversOf(w.current())
	var total int64
	for _, server := range active {
		found, err := call[holding](ctx, w.client, http.MethodGet, "http://"+server.Address+"/holding", empty{})
		if err != nil {
			return 0, err
		}
		for _, state := range found.Shards {
			total += state[w.name]
		}
	}
	return total, nil
}
