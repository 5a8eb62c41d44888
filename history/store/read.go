// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/history/record"
)

// MaxSamples bounds the samples of one read.
const MaxSamples = 20_000

// Job returns the job of a UID, or the newest of the name if the UID is empty.
func (s *Store) Job(ctx context.Context, namespace, name, uid string) (record.Job, error) {
	var job record.Job
	where := conditions{}
	where.add("namespace = ?", storable(namespace))
	where.add("name = ?", storable(name))
	if uid != "" {
		where.add("uid = ?", storable(uid))
	}
	found := false
	err := s.query(ctx, s.read, func(scan scan) error {
		found = true
		var encoded string
		if err := scan(&encoded); err != nil {
			return err
		}
		return json.Unmarshal([]byte(encoded), &job)
	}, "SELECT record FROM jobs JOIN records ON records.job = jobs.id"+where.where()+" ORDER BY created DESC, id DESC LIMIT 1", where.arguments...)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return job, fmt.Errorf("reading job %s/%s: %w", namespace, name, err)
	}
	return job, nil
}

// Samples returns the samples of a job after a time, at most MaxSamples.
func (s *Store) Samples(ctx context.Context, uid string, after time.Time) ([]record.Sample, error) {
	found, err := s.samples(ctx, s.read, "job = (SELECT id FROM jobs WHERE uid = ?) AND at > ? ORDER BY at, span LIMIT ?", storable(uid), micros(after), MaxSamples)
	if err != nil {
		return nil, fmt.Errorf("reading the samples of job %s: %w", uid, err)
	}
	return found, nil
}

// Tails returns the tails of a job in the order in which the containers ended.
func (s *Store) Tails(ctx context.Context, uid string) ([]record.Tail, error) {
	var tails []record.Tail
	err := s.query(ctx, s.read, func(scan scan) error {
		var encoded string
		if err := scan(&encoded); err != nil {
			return err
		}
		var tail record.Tail
		if err := json.Unmarshal([]byte(encoded), &tail); err != nil {
			return err
		}
		tails = append(tails, tail)
		return nil
	}, "SELECT tail FROM tails WHERE job = (SELECT id FROM jobs WHERE uid = ?) ORDER BY ended, pod_uid, container LIMIT ?", storable(uid), record.MaxTails)
	if err != nil {
		return nil, fmt.Errorf("reading the tails of job %s: %w", uid, err)
	}
	return tails, nil
}

// Open calls give for the records of all jobs that have not ended, in pages of a size.
func (s *Store) Open(ctx context.Context, size int, give func([]record.Job) error) error {
	for last := int64(0); ; {
		var page []record.Job
		err := s.query(ctx, s.read, func(scan scan) error {
			var encoded string
			if err := scan(&last, &encoded); err != nil {
				return err
			}
			var job record.Job
			if err := json.Unmarshal([]byte(encoded), &job); err != nil {
				return err
			}
			page = append(page, job)
			return nil
		}, "SELECT id, record FROM jobs JOIN records ON records.job = jobs.id WHERE ended = 0 AND id > ? ORDER BY id LIMIT ?", last, size)
		if err != nil {
			return fmt.Errorf("reading the jobs that have not ended: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		if err := give(page); err != nil {
			return err
		}
	}
}
