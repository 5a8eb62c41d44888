// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// guard is the lock of a Lease. It reports a held Lease as lost when no renewal has succeeded for stopAfter. client-go by itself
// ends later if the last renewal or the release is slow.
type guard struct {
	resourcelock.Interface
	clock clock.WithDelayedExecution
	lost  func(error)

	mutex sync.Mutex
	// timer fires when the Lease is lost; nil while it is not held. mutex guards it.
	timer clock.Timer
}

// Create implements resourcelock.Interface.
func (g *guard) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	started := g.clock.Now()
	if err := g.Interface.Create(ctx, record); err != nil {
		return err
	}
	g.renewed(&record, started)
	return nil
}

// Update implements resourcelock.Interface.
func (g *guard) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	started := g.clock.Now()
	if err := g.Interface.Update(ctx, record); err != nil {
		return err
	}
	g.renewed(&record, started)
	return nil
}

// renewed follows a write of the Lease. Others may see the renewal as soon as it starts, so its time counts from there.
func (g *guard) renewed(record *resourcelock.LeaderElectionRecord, started time.Time) {
	g.stop()
	if record.HolderIdentity == g.Identity() {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		g.timer = g.clock.AfterFunc(stopAfter-g.clock.Since(started), func() {
			g.lost(fmt.Errorf("lease %s was not renewed for %s", g.Describe(), stopAfter))
		})
	}
}

// stop reports nothing until the next renewal.
func (g *guard) stop() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

// Guard runs a program. It returns an error as soon as a Lease is lost. The program may still run then, so the process must end.
func (l *Leases) Guard(ctx context.Context, program Program) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- program(ctx) }()
	select {
	case err := <-ended:
		return err
	case err := <-l.lost:
		return err
	}
}

// lose reports a lost Lease. The first one is enough.
func (l *Leases) lose(err error) {
	select {
	case l.lost <- err:
	default:
	}
}
