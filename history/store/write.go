// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"opendilab.org/di-orchestrator/history/record"
)

// MaxChanges bounds the changes of one write.
const MaxChanges = 1_000

// rowBytes is what a row counts beside its texts: about what it takes with its share of the indexes.
const rowBytes = 100

// Change is what has changed of one job. Writing it twice equals writing it once.
type Change struct {
	UID string
	// Job replaces what is recorded; nil if only samples and tails are new. One without an end does
	// not replace one with an end.
	Job     *record.Job
	Samples []record.Sample
	Tails   []record.Tail
}

// stored is what the transaction knows of the row of a job.
type stored struct {
	id                       int64
	recordBytes, otherBytes  int64
	ended, thinAt            int64
	otherBytesWas, thinAtWas int64
}

// Write records changes in one transaction. Samples and tails of jobs that are not recorded are
// ignored, since retention may have removed the job.
func (s *Store) Write(ctx context.Context, changes []Change) error {
	if len(changes) > MaxChanges {
		return fmt.Errorf("%d changes in one write: at most %d are allowed", len(changes), MaxChanges)
	}
	return s.alone(ctx, func(t *transaction) error {
		for _, change := range changes {
			if err := t.change(ctx, change); err != nil {
				return fmt.Errorf("recording job %s: %w", change.UID, err)
			}
		}
		return nil
	})
}

func (t *transaction) change(ctx context.Context, change Change) error {
	var job stored
	exists, err := t.row(ctx, []any{&job.id, &job.recordBytes, &job.otherBytes, &job.ended, &job.thinAt},
		"SELECT id, record_bytes, other_bytes, ended, thin_at FROM jobs WHERE uid = ?", change.UID)
	if err != nil {
		return err
	}
	job.otherBytesWas, job.thinAtWas = job.otherBytes, job.thinAt
	if change.Job != nil && (job.ended == 0 || change.Job.HasEnded()) {
		if err := t.replace(ctx, &job, change.UID, record.Bound(*change.Job)); err != nil {
			return err
		}
	} else if !exists {
		return nil
	}
	for _, sample := range change.Samples {
		if err := t.addSample(ctx, &job, record.BoundSample(sample)); err != nil {
			return err
		}
	}
	for _, tail := range change.Tails {
		if err := t.addTail(ctx, &job, record.BoundTail(tail)); err != nil {
			return err
		}
	}
	return t.settle(ctx, &job)
}

// replace writes the row and the record of a job.
func (t *transaction) replace(ctx context.Context, row *stored, uid string, job record.Job) error {
	encoded, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	words := strings.ToLower(strings.Join([]string{job.Name, job.Group, job.Creator, job.Reason, job.Message}, "\n"))
	bytes := int64(len(encoded) + len(words) + rowBytes)
	isNew := row.id == 0
	if _, err := t.row(ctx, []any{&row.id}, `INSERT INTO jobs (uid, namespace, name, job_group, family, creator, phase, reason, message,
			created, started, ended, is_unseen, restarts, words, record_bytes, other_bytes, thin_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)
		ON CONFLICT (uid) DO UPDATE SET namespace = excluded.namespace, name = excluded.name, job_group = excluded.job_group, family = excluded.family,
			creator = excluded.creator, phase = excluded.phase, reason = excluded.reason, message = excluded.message,
			created = excluded.created, started = excluded.started, ended = excluded.ended, is_unseen = excluded.is_unseen,
			restarts = excluded.restarts, words = excluded.words, record_bytes = excluded.record_bytes
		RETURNING id`,
		uid, job.Namespace, job.Name, job.Group, job.Family(), job.Creator, job.Phase, job.Reason, job.Message,
		micros(job.Created), micros(job.Started), micros(job.Ended), number(job.Unseen), job.RestartCount(), words, bytes); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `INSERT INTO records (job, record) VALUES (?, ?)
		ON CONFLICT (job) DO UPDATE SET record = excluded.record`, row.id, string(encoded)); err != nil {
		return err
	}
	if isNew {
		t.totals.Jobs++
	}
	if row.ended == 0 && job.HasEnded() {
		if err := t.addSum(ctx, &job); err != nil {
			return err
		}
	}
	t.totals.Bytes += bytes - row.recordBytes
	row.recordBytes = bytes
	return nil
}

func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func (t *transaction) addTail(ctx context.Context, job *stored, tail record.Tail) error {
	encoded, err := json.Marshal(tail)
	if err != nil {
		return err
	}
	var count int64
	if _, err := t.row(ctx, []any{&count}, "SELECT count(*) FROM tails WHERE job = ?", job.id); err != nil || count >= record.MaxTails {
		return err
	}
	added, err := t.exec(ctx, `INSERT INTO tails (job, pod_uid, container, restarts, ended, tail) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (job, pod_uid, container, restarts) DO NOTHING`,
		job.id, tail.PodUID, tail.Container, int64(tail.Restarts), micros(tail.Ended), string(encoded))
	job.otherBytes += added * int64(len(encoded)+rowBytes)
	return err
}

// settle writes what samples and tails have changed of the row of a job.
func (t *transaction) settle(ctx context.Context, job *stored) error {
	if job.otherBytes == job.otherBytesWas && job.thinAt == job.thinAtWas {
		return nil
	}
	t.totals.Bytes += job.otherBytes - job.otherBytesWas
	_, err := t.exec(ctx, "UPDATE jobs SET other_bytes = ?, thin_at = ? WHERE id = ?", job.otherBytes, job.thinAt, job.id)
	return err
}
