// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/history/record"
)

const (
	// maxDays bounds the days of one query, and maxSummed the rows that it sums up.
	maxDays, maxSummed = 400, 20_000
	// keptSums is about how many rows are kept: those of the last days.
	keptSums = 1_000_000
	// retainSums bounds the rows that one transaction deletes.
	retainSums = 2_000

	day = 24 * time.Hour
)

// SumFilter selects jobs by when they ended.
type SumFilter struct {
	// Since and Until are days; both count.
	Since, Until time.Time
	// Namespace is that of the jobs; empty for all.
	Namespace string
	By        record.By
	// IsDaily asks for the days of the first sums.
	IsDaily bool
}

func dayOf(at time.Time) int64 { return at.Unix() / int64(day/time.Second) }

// addSum counts a job when it ends.
func (t *transaction) addSum(ctx context.Context, job *record.Job) error {
	sum := job.Sum()
	_, err := t.exec(ctx, `INSERT INTO sums (day, namespace, job_group, queue, creator, cause, jobs, waited, gpu,
			cpu_requested, cpu_used, memory_requested, memory_used)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (day, namespace, job_group, queue, creator, cause) DO UPDATE SET jobs = sums.jobs + excluded.jobs, waited = sums.waited + excluded.waited,
			gpu = sums.gpu + excluded.gpu, cpu_requested = sums.cpu_requested + excluded.cpu_requested, cpu_used = sums.cpu_used + excluded.cpu_used,
			memory_requested = sums.memory_requested + excluded.memory_requested, memory_used = sums.memory_used + excluded.memory_used`,
		dayOf(job.Ended), job.Namespace, job.Group, job.Queue, job.Creator, job.Cause(), sum.Jobs, sum.Waited, sum.GPU,
		sum.CPURequested, sum.CPUUsed, sum.MemoryRequested, sum.MemoryUsed)
	return err
}

// dropSums deletes a bounded part of the days beyond the limits. It reports whether there may be more.
func (t *transaction) dropSums(ctx context.Context, limits Limits, now time.Time) (more bool, err error) {
	first := int64(0)
	if _, err := t.row(ctx, []any{&first}, "SELECT day FROM sums ORDER BY day DESC LIMIT 1 OFFSET ?", keptSums); err != nil {
		return false, err
	}
	if limits.Age > 0 {
		first = max(first, dayOf(now.Add(-limits.Age)))
	}
	const key = "day, namespace, job_group, queue, creator, cause"
	deleted, err := t.exec(ctx, "DELETE FROM sums WHERE ("+key+") IN (SELECT "+key+" FROM sums WHERE day < ? ORDER BY day LIMIT ?)", first, retainSums)
	return deleted == retainSums, err
}

// Sums returns what jobs took together, those with the most GPU hours first.
func (s *Store) Sums(ctx context.Context, filter SumFilter) (record.SumList, error) {
	column, isKnown := map[record.By]string{
		record.ByNamespace: "namespace", record.ByGroup: "job_group", record.ByQueue: "queue", record.ByUser: "creator", record.ByCause: "cause", record.ByDay: "day",
	}[filter.By]
	from, to := dayOf(filter.Since), dayOf(filter.Until)
	list := record.SumList{Since: time.Unix(from*int64(day/time.Second), 0).UTC(), Sums: []record.Sum{}}
	switch {
	case !isKnown:
		return list, fmt.Errorf("%w: by %q: must be namespace, group, queue, user, cause or day", ErrInvalid, record.Text(string(filter.By), record.MaxName))
	case to < from || to-from >= maxDays:
		return list, fmt.Errorf("%w: the time is of %d days: must be from 1 to %d", ErrInvalid, to-from+1, maxDays)
	}
	selected := conditions{}
	selected.add("day >= ? AND day <= ?", from, to)
	if filter.Namespace != "" {
		selected.add("namespace = ?", storable(filter.Namespace))
	}
	summed, first := int64(0), to
	err := s.query(ctx, s.read, func(scan scan) error {
		var sum record.Sum
		var rows, since, ofDay int64
		into := any(&sum.Key)
		if filter.By == record.ByDay {
			into = &ofDay
		}
		if err := scan(into, &rows, &since, &sum.Jobs, &sum.Unsuccessful, &sum.Waited, &sum.GPU, &sum.CPURequested, &sum.CPUUsed, &sum.MemoryRequested, &sum.MemoryUsed); err != nil {
			return err
		}
		if filter.By == record.ByDay {
			sum.Key = time.Unix(ofDay*int64(day/time.Second), 0).UTC().Format(time.DateOnly)
		}
		summed, first = summed+rows, min(first, since)
		list.Sums = append(list.Sums, sum)
		return nil
	}, `SELECT `+column+`, COUNT(*), MIN(day), CAST(SUM(jobs) AS BIGINT), CAST(SUM(CASE WHEN cause = '' THEN 0 ELSE jobs END) AS BIGINT), SUM(waited), SUM(gpu),
			SUM(cpu_requested), SUM(cpu_used), SUM(memory_requested), SUM(memory_used)
		FROM (SELECT * FROM sums`+selected.where()+` ORDER BY day DESC LIMIT ?) AS selected
		GROUP BY 1 ORDER BY 7 DESC, 4 DESC, 1 LIMIT ?`, append(selected.arguments, maxSummed, record.MaxSums+1)...)
	if err != nil {
		return list, fmt.Errorf("summing up jobs: %w", err)
	}
	if list.Truncated = summed >= maxSummed; list.Truncated {
		list.Since = time.Unix(first*int64(day/time.Second), 0).UTC()
	}
	if len(list.Sums) > record.MaxSums {
		list.Truncated, list.Sums = true, list.Sums[:record.MaxSums]
	}
	if filter.IsDaily && filter.By != record.ByDay {
		return list, s.addDays(ctx, &list, column, selected, to)
	}
	return list, nil
}

// addDays adds the GPU hours of each day to the first sums, whose keys are in a column. The last day is to.
func (s *Store) addDays(ctx context.Context, list *record.SumList, column string, selected conditions, to int64) error {
	from := dayOf(list.Since)
	byKey, keys := map[string]*record.Sum{}, []any{}
	for i := range list.Sums[:min(len(list.Sums), record.MaxDaily)] {
		sum := &list.Sums[i]
		sum.Daily = make([]float64, to-from+1)
		byKey[sum.Key], keys = sum, append(keys, sum.Key)
	}
	if len(keys) == 0 {
		return nil
	}
	err := s.query(ctx, s.read, func(scan scan) error {
		var key string
		var ofDay int64
		var gpu float64
		if err := scan(&key, &ofDay, &gpu); err != nil {
			return err
		}
		// A job may end while this reads.
		if sum := byKey[key]; sum != nil && ofDay >= from {
			sum.Daily[ofDay-from] = gpu
		}
		return nil
	}, `SELECT `+column+`, day, SUM(gpu) FROM (SELECT * FROM sums`+selected.where()+` ORDER BY day DESC LIMIT ?) AS selected
		WHERE `+column+` IN (?`+strings.Repeat(", ?", len(keys)-1)+`) GROUP BY 1, 2`,
		slices.Concat(selected.arguments, []any{maxSummed}, keys)...)
	if err != nil {
		return fmt.Errorf("summing up days: %w", err)
	}
	return nil
}
