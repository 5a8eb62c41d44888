// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/controllers/shards"
)

// Leader declares in the leader's Lease how many shards there are. The operators of this number of shards
// then act, and others release theirs.
type Leader struct {
	leases *Leases
	count  int
	after  <-chan struct{}
	clock  clock.WithTicker
	log    logr.Logger
	mayAct chan struct{}
}

// NewLeader returns a leader of operators with a number of shards. It declares when a channel is closed.
func NewLeader(leases *Leases, count int, after <-chan struct{}, clock clock.WithTicker, log logr.Logger) *Leader {
	return &Leader{leases: leases, count: count, after: after, clock: clock, log: log, mayAct: make(chan struct{})}
}

// MayAct is closed when the leader has declared the number, and no operator holds a shard of another number.
func (l *Leader) MayAct() <-chan struct{} { return l.mayAct }

// NeedLeaderElection reports that only the leader declares.
func (*Leader) NeedLeaderElection() bool { return true }

// Start declares the number, and waits for operators of another number.
func (l *Leader) Start(ctx context.Context) error {
	select {
	case <-l.after:
	case <-ctx.Done():
		return nil
	}
	ticker := l.clock.NewTicker(interval)
	defer ticker.Stop()
	sightings, logged := shards.Sightings{}, ""
	for {
		err := l.declare(ctx, sightings)
		if err == nil {
			close(l.mayAct)
			return nil
		}
		if ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			l.log.Info("Jobs wait for other operators", "reason", logged)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// declare declares the number. It returns an error while an operator holds a shard of another number.
func (l *Leader) declare(ctx context.Context, sightings shards.Sightings) error {
	if err := l.leases.annotate(ctx, l.leases.key.Name, annotationCharter, shards.Charter(l.count, l.leases.identity)); err != nil {
		return err
	}
	all, err := l.leases.list(ctx)
	if err != nil {
		return err
	}
	now := l.clock.Now()
	operator := shards.Operator{Identity: l.leases.identity, Leader: l.leases.key.Name, Count: l.count}
	if !operator.Decide(all, sightings.Live(all, now), now).Alone {
		return fmt.Errorf("operators hold shards of another number than %d", l.count)
	}
	return nil
}
