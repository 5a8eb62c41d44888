// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/history/record"
)

const (
	// thinJobs and thinSamples bound what one transaction thins.
	thinJobs    = 20
	thinSamples = 5_000
)

// addSample adds what a job reported, unless there is a sample of that time.
func (t *transaction) addSample(ctx context.Context, job *stored, sample record.Sample) error {
	if len(sample.Values) == 0 {
		return nil
	}
	encoded, err := json.Marshal(sample.Values)
	if err != nil {
		return err
	}
	added, err := t.exec(ctx, "INSERT INTO samples (job, span, at, sampled) VALUES (?, ?, ?, ?) ON CONFLICT (job, span, at) DO NOTHING",
		job.id, int64(sample.Span/time.Second), micros(sample.At), string(encoded))
	if err != nil || added == 0 {
		return err
	}
	job.otherBytes += sampleBytes(string(encoded))
	if at, isThinned := record.ThinAgain(sample); isThinned && (job.thinAt == 0 || micros(at) < job.thinAt) {
		job.thinAt = micros(at)
	}
	return nil
}

func sampleBytes(encoded string) int64 {
	// The row has no index beside its key.
	return int64(len(encoded)) + rowBytes/4
}

// Thin thins samples by their age. It reports whether there is more to thin now.
func (s *Store) Thin(ctx context.Context, now time.Time) (bool, error) {
	more := false
	err := s.alone(ctx, func(t *transaction) error {
		var jobs []stored
		err := s.query(ctx, t, func(scan scan) error {
			var job stored
			if err := scan(&job.id, &job.otherBytes, &job.thinAt); err != nil {
				return err
			}
			job.otherBytesWas, job.thinAtWas = job.otherBytes, job.thinAt
			jobs = append(jobs, job)
			return nil
		}, "SELECT id, other_bytes, thin_at FROM jobs WHERE thin_at > 0 AND thin_at <= ? ORDER BY thin_at LIMIT ?", micros(now), thinJobs)
		if err != nil {
			return err
		}
		more = len(jobs) == thinJobs
		for _, job := range jobs {
			if err := t.thin(ctx, &job, now); err != nil {
				return err
			}
			more = more || job.thinAt > 0 && job.thinAt <= micros(now)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("thinning samples: %w", err)
	}
	return more, nil
}

// thin replaces the oldest samples of a job, each resolution in turn, by those of the next one.
func (t *transaction) thin(ctx context.Context, job *stored, now time.Time) error {
	job.thinAt = 0
	for _, span := range record.Spans() {
		due, err := t.samples(ctx, job.id, "span = ? AND at < ? ORDER BY at LIMIT ?", int64(span/time.Second), micros(now), thinSamples)
		if err != nil {
			return err
		}
		changed := due[:0]
		for _, sample := range due {
			at, isThinned := record.ThinAgain(sample)
			if isThinned && at.After(now) {
				break
			}
			changed = append(changed, sample)
		}
		if err := t.merge(ctx, job, changed, now); err != nil {
			return err
		}
	}
	return t.settleThinned(ctx, job)
}

// merge replaces samples by what thinning makes of them together with means that exist of their
// spans.
func (t *transaction) merge(ctx context.Context, job *stored, changed []record.Sample, now time.Time) error {
	inputs := slices.Clone(changed)
	for _, mean := range record.Thin(changed, now) {
		existing, err := t.samples(ctx, job.id, "span = ? AND at = ?", int64(mean.Span/time.Second), micros(mean.At))
		if err != nil {
			return err
		}
		inputs = append(inputs, existing...)
	}
	for _, sample := range inputs {
		encoded, err := json.Marshal(sample.Values)
		if err != nil {
			return err
		}
		deleted, err := t.exec(ctx, "DELETE FROM samples WHERE job = ? AND span = ? AND at = ?", job.id, int64(sample.Span/time.Second), micros(sample.At))
		if err != nil {
			return err
		}
		job.otherBytes -= deleted * sampleBytes(string(encoded))
	}
	for _, mean := range record.Thin(inputs, now) {
		if err := t.addSample(ctx, job, mean); err != nil {
			return err
		}
	}
	return nil
}

// settleThinned finds when the job is thinned again.
func (t *transaction) settleThinned(ctx context.Context, job *stored) error {
	job.thinAt = 0
	for _, span := range record.Spans() {
		oldest, err := t.samples(ctx, job.id, "span = ? ORDER BY at LIMIT 1", int64(span/time.Second))
		if err != nil {
			return err
		}
		for _, sample := range oldest {
			if at, isThinned := record.ThinAgain(sample); isThinned && (job.thinAt == 0 || micros(at) < job.thinAt) {
				job.thinAt = micros(at)
			}
		}
	}
	return t.settle(ctx, job)
}

// samples reads those of a job that a condition selects.
func (t *transaction) samples(ctx context.Context, job int64, condition string, arguments ...any) ([]record.Sample, error) {
	return t.store.samples(ctx, t, "job = ? AND "+condition, append([]any{job}, arguments...)...)
}

func (s *Store) samples(ctx context.Context, in querier, condition string, arguments ...any) ([]record.Sample, error) {
	var found []record.Sample
	err := s.query(ctx, in, func(scan scan) error {
		var span, at int64
		var sampled string
		if err := scan(&span, &at, &sampled); err != nil {
			return err
		}
		sample := record.Sample{At: timeOf(at), Span: time.Duration(span) * time.Second}
		if err := json.Unmarshal([]byte(sampled), &sample.Values); err != nil {
			return fmt.Errorf("decoding the sample of %s: %w", sample.At, err)
		}
		found = append(found, sample)
		return nil
	}, "SELECT span, at, sampled FROM samples WHERE "+condition, arguments...)
	return found, err
}
