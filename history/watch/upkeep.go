// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/history/store"
)

// upkeepInterval is how often the database is kept within its limits.
const upkeepInterval = time.Minute

// Keeper is a database that is kept within limits.
type Keeper interface {
	Thin(ctx context.Context, now time.Time) (more bool, err error)
	Retain(ctx context.Context, limits store.Limits, now time.Time) (store.Deleted, error)
	Vacuum(ctx context.Context) error
	Totals(ctx context.Context) (store.Totals, error)
}

// Upkeep thins curves and deletes jobs beyond the limits.
type Upkeep struct {
	Store   Keeper
	Limits  store.Limits
	Metrics *Metrics
	Clock   clock.Clock
	Log     logr.Logger
}

// NeedLeaderElection restricts it to the leader.
func (*Upkeep) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (u *Upkeep) Start(ctx context.Context) error {
	defer u.Metrics.totals.Store(nil)
	for {
		if err := u.keep(ctx); err != nil && ctx.Err() == nil {
			u.Metrics.failures.WithLabelValues(string(StepUpkeep)).Inc()
			u.Log.Error(err, "Cannot keep the database within its limits; retrying")
		}
		if !pause(ctx, u.Clock, upkeepInterval) {
			return nil
		}
	}
}

// keep works in bounded transactions, between which others may write.
func (u *Upkeep) keep(ctx context.Context) error {
	now := u.Clock.Now()
	for more, err := true, error(nil); more; {
		if more, err = u.Store.Thin(ctx, now); err != nil {
			return err
		}
	}
	total := store.Deleted{}
	for more := true; more; {
		deleted, err := u.Store.Retain(ctx, u.Limits, now)
		if err != nil {
			return err
		}
		total.Jobs, total.Bytes, more = total.Jobs+deleted.Jobs, total.Bytes+deleted.Bytes, deleted.More
		u.Metrics.removed.WithLabelValues().Add(float64(deleted.Jobs))
	}
	if total.Jobs > 0 {
		u.Log.Info("Deleted jobs beyond the limits", "jobs", total.Jobs, "bytes", total.Bytes)
	}
	totals, err := u.Store.Totals(ctx)
	if err != nil {
		return err
	}
	u.Metrics.totals.Store(&totals)
	return u.Store.Vacuum(ctx)
}
