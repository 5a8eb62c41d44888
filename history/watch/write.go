// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

// writeTime bounds one write, so that a database that no longer answers is noticed.
const writeTime = time.Minute

// write records changes. What the database never stores does not stop the others.
func (r *Recorder) write(ctx context.Context, changes []store.Change) error {
	for i, change := range changes {
		if r.reduced[types.UID(change.UID)] {
			changes[i] = reduced(change)
		}
	}
	limited, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := r.Store.Write(limited, changes)
	switch {
	case err == nil:
		r.Metrics.written.WithLabelValues().Add(float64(len(changes)))
		return nil
	case !errors.Is(err, store.ErrRefused):
		return err
	case len(changes) == 1:
		return r.reduce(ctx, changes[0], err)
	}
	half := len(changes) / 2
	if err := r.write(ctx, changes[:half]); err != nil {
		return err
	}
	return r.write(ctx, changes[half:])
}

// reduce records a job without its large parts, and drops it if that is refused too. Trying again does
// not help, so that it fails only if the database does.
func (r *Recorder) reduce(ctx context.Context, change store.Change, cause error) error {
	uid := types.UID(change.UID)
	if !r.reduced[uid] {
		r.reduced[uid] = true
		r.Log.Error(cause, "The database refuses a job: it is recorded without its large parts", "uid", uid)
		r.Metrics.refused.WithLabelValues(resultReduced).Inc()
		return r.write(ctx, []store.Change{change})
	}
	r.Metrics.refused.WithLabelValues(resultDropped).Inc()
	if !r.dropped[uid] {
		r.dropped[uid] = true
		r.Log.Error(cause, "The database refuses a job even without its large parts: it is not recorded", "uid", uid)
	}
	return nil
}

func reduced(change store.Change) store.Change {
	if change.Job != nil {
		lean := record.Lean(*change.Job)
		change.Job = &lean
	}
	change.Samples, change.Tails = nil, nil
	return change
}
