// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"
)

const (
	// retainJobs and retainBytes bound what one transaction deletes, except that it deletes one job.
	retainJobs  = 500
	retainBytes = 16 << 20
	// vacuumPages bounds the pages of SQLite that one call gives back.
	vacuumPages = 10_000
)

// Limits are what is kept; 0 stands for no limit. Jobs that have not ended are always kept.
type Limits struct {
	// Age is how long a job is kept after its end.
	Age time.Duration
	// Jobs and Bytes bound the totals.
	Jobs, Bytes int64
}

// Deleted is what one call of Retain deleted.
type Deleted struct {
	Jobs, Bytes int64
	// More is true if there is more to delete now.
	More bool
}

// Retain deletes jobs beyond the limits, those that ended first, in one bounded transaction.
func (s *Store) Retain(ctx context.Context, limits Limits, now time.Time) (Deleted, error) {
	var deleted Deleted
	err := s.alone(ctx, func(t *transaction) error {
		deleted = Deleted{}
		excess, err := t.excess(ctx, limits, now)
		if err != nil {
			return err
		}
		for _, job := range excess {
			if deleted.Jobs == retainJobs || deleted.Jobs > 0 && deleted.Bytes+job.bytes > retainBytes {
				deleted.More = true
				break
			}
			if _, err := t.exec(ctx, "DELETE FROM jobs WHERE id = ?", job.id); err != nil {
				return err
			}
			deleted.Jobs++
			deleted.Bytes += job.bytes
		}
		more, err := t.dropSums(ctx, limits, now)
		if err != nil {
			return err
		}
		deleted.More = deleted.More || more
		t.totals.Jobs -= deleted.Jobs
		t.totals.Bytes -= deleted.Bytes
		return nil
	})
	if err != nil {
		return Deleted{}, fmt.Errorf("deleting jobs beyond the limits: %w", err)
	}
	return deleted, nil
}

type ended struct {
	id, bytes, at int64
}

// excess returns the jobs to delete, at most one more than a transaction deletes.
func (t *transaction) excess(ctx context.Context, limits Limits, now time.Time) ([]ended, error) {
	var excess []ended
	left := t.totals
	isOver := func(job ended) bool {
		return limits.Age > 0 && job.at < micros(now.Add(-limits.Age)) ||
			limits.Jobs > 0 && left.Jobs > limits.Jobs ||
			limits.Bytes > 0 && left.Bytes > limits.Bytes
	}
	keepsRest := false
	err := t.store.query(ctx, t, func(scan scan) error {
		var job ended
		if err := scan(&job.id, &job.bytes, &job.at); err != nil {
			return err
		}
		if keepsRest = keepsRest || !isOver(job); keepsRest {
			return nil
		}
		left.Jobs--
		left.Bytes -= job.bytes
		excess = append(excess, job)
		return nil
	}, "SELECT id, record_bytes + other_bytes, ended FROM jobs WHERE ended > 0 ORDER BY ended, id LIMIT ?", retainJobs+1)
	return excess, err
}

// Vacuum gives a bounded part of what was deleted back to the file system, and updates the statistics
// of the planner. PostgreSQL does both by itself.
func (s *Store) Vacuum(ctx context.Context) error {
	if s.dialect.numbered {
		return nil
	}
	for _, pragma := range []string{fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages), "PRAGMA optimize"} {
		// Each row that is read frees a page.
		if err := s.query(ctx, s.write, func(scan) error { return nil }, pragma); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}
	return nil
}
