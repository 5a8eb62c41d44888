// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/limit"
)

// JobEdit is an edit of a worker-led job.
type JobEdit interface {
	// Kind is the account of the write. Each kind of write has limits of its own, so that reports cannot delay
	// what a job asks for.
	Kind() limit.Kind
	// Check refuses jobs that the request may not edit.
	Check(ctx context.Context, job *v2alpha1.DIJob) error
	// Apply edits the job in memory and returns the patch that writes the edit. It returns the zero patch
	// if there is no change. ErrNotYet retries the edit.
	Apply(job *v2alpha1.DIJob) (JobPatch, error)
}

// JobPatch is a patch of a job, or of the named subresource. It conflicts if the job has changed since it
// was read.
type JobPatch struct {
	subresource string
	patch       client.Patch
}

// changed returns the patch from the original to the changed job.
func changed(original *v2alpha1.DIJob, subresource string) JobPatch {
	return JobPatch{subresource, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})}
}

// EditJob applies an edit to a job in one optimistic patch. It repeats the edit after each conflict. It
// reports whether a failed patch may have been written.
func (s *Store) EditJob(ctx context.Context, key types.NamespacedName, edit JobEdit) (uncertain bool, err error) {
	paced := false
	err = Retry(ctx, func(ctx context.Context) error {
		var job v2alpha1.DIJob
		if err := s.Live(ctx, key, &job); err != nil {
			return err
		}
		if err := edit.Check(ctx, &job); err != nil {
			return err
		}
		if !paced {
			if err := s.options.Rates.Wait(ctx, string(edit.Kind().Account(job.UID))); err != nil {
				return err
			}
			paced = true
		}
		made, err := edit.Apply(&job)
		switch {
		case err != nil && !errors.Is(err, ErrNotYet):
			// The edit is deterministic and fails again on the same job.
			return failure.From(err)
		case err != nil || made.patch == nil:
			return err
		}
		err = s.charged(ctx, edit.Kind().Account(job.UID), &job, func() error { return s.Patch(ctx, &job, made.subresource, made.patch) })
		uncertain = uncertain || IsUncertain(err)
		return err
	})
	return uncertain, WriteFailure(key, err)
}

// WriteFailure returns the failure of writing a worker-led job.
func WriteFailure(key types.NamespacedName, err error) error {
	switch {
	case err == nil:
		return nil
	case isDenied(err):
		return denied(err)
	case isTooLarge(err):
		return failure.New(failure.Invalid, "job %q and what it reports are together larger than the API server stores: report less", key).Because(err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return failure.New(failure.Invalid, "job %q cannot take this: %v", key, err)
	}
	return ReadFailure(key, err)
}
