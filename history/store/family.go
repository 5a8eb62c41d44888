// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"opendilab.org/di-orchestrator/history/record"
)

const (
	// maxFamily bounds the jobs of one read of a family.
	maxFamily = 64
	// maxFamilyRecord bounds the record of each, in bytes, and maxFamilyRecords those of all. Larger ones are left out.
	maxFamilyRecord, maxFamilyRecords = 2 << 20, 16 << 20
)

// errEnough ends a read.
var errEnough = errors.New("enough is read")

// Family returns finished jobs of a namespace and family, those first that ended last.
func (s *Store) Family(ctx context.Context, namespace, family string) ([]record.Job, error) {
	var jobs []record.Job
	bytes := 0
	err := s.query(ctx, s.read, func(scan scan) error {
		var encoded string
		if err := scan(&encoded); err != nil {
			return err
		}
		if bytes += len(encoded); bytes > maxFamilyRecords {
			return errEnough
		}
		var job record.Job
		if err := json.Unmarshal([]byte(encoded), &job); err != nil {
			return err
		}
		jobs = append(jobs, job)
		return nil
	}, `SELECT record FROM jobs JOIN records ON records.job = jobs.id WHERE namespace = ? AND family = ? AND ended > 0
		AND record_bytes <= ? ORDER BY ended DESC, id DESC LIMIT ?`, storable(namespace), storable(family), maxFamilyRecord, maxFamily)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("reading the finished jobs of family %s in namespace %s: %w", family, namespace, err)
	}
	return jobs, nil
}

// LastSamples returns the last samples of a job, at most so many.
func (s *Store) LastSamples(ctx context.Context, uid string, limit int) ([]record.Sample, error) {
	found, err := s.samples(ctx, s.read, "job = (SELECT id FROM jobs WHERE uid = ?) ORDER BY at DESC, span LIMIT ?", storable(uid), limit)
	if err != nil {
		return nil, fmt.Errorf("reading the last samples of job %s: %w", uid, err)
	}
	return found, nil
}
