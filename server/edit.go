// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
)

// edit changes the list of a job's members in memory and returns the URLs to
// answer with.
type edit func(*v2alpha1.Membership) (membership.URLs, error)

// change edits the Membership of the caller's job in one optimistic write,
// which also records the request, and returns the answer. A repeat of a
// recorded request is answered and not done. What was read live decides, so
// that no edit is decided on an old list; where another write came between,
// the edit is made anew on what that left.
func (s *Server) change(ctx context.Context, by *caller, request membership.Request, edit edit) (membership.URLs, error) {
	var answer membership.URLs
	err := persist(ctx, func(ctx context.Context) error {
		list, err := s.liveMembership(ctx, by.job)
		if err != nil {
			return err
		}
		now := s.options.Clock.Now()
		recorded, repeat, err := membership.Recall(&list.Spec, request, now)
		if err != nil {
			return failure(KindConflict, "%v", err)
		}
		if repeat {
			answer = recorded
			return nil
		}
		before := list.Spec.DeepCopy()
		if answer, err = edit(list); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(before, &list.Spec) {
			return nil
		}
		membership.Record(&list.Spec, request, answer, now)
		err = s.store.update(ctx, list)
		if apierrors.IsNotFound(err) {
			// Deleted since it was read; the operator makes it again.
			return errNotYet
		}
		return err
	})
	if err != nil {
		return membership.URLs{}, changeFailure(by.job, err)
	}
	return answer, nil
}

// changeFailure returns what a client is told of a failed write.
func changeFailure(job *v2alpha1.DIJob, err error) error {
	if apierrors.IsNotFound(err) {
		return failure(KindNotFound, "job %s/%s is gone", job.Namespace, job.Name).because(err)
	}
	return fmt.Errorf("writing for job %s/%s: %w", job.Namespace, job.Name, err)
}

// liveMembership reads a job's Membership live. While there is none, or only
// that of a predecessor of the same name, it returns errNotYet: the operator
// makes it, for as long as the job exists.
func (s *Server) liveMembership(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	key := client.ObjectKeyFromObject(job)
	var list v2alpha1.Membership
	err := s.store.live(ctx, key, &list)
	if err == nil && list.Spec.JobUID == job.UID {
		return &list, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	var current v2alpha1.DIJob
	if err := s.store.live(ctx, key, &current); err != nil {
		return nil, err
	}
	if current.UID != job.UID {
		return nil, failure(KindNotFound, "job %q is gone: another bears its name", key)
	}
	if err := writable(&current); err != nil {
		return nil, err
	}
	return nil, errNotYet
}

// identify returns the identity of a request, by which a repeat is known.
func identify(by *caller, operation, idempotencyKey string, body any) (membership.Request, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return membership.Request{}, fmt.Errorf("encoding the request: %w", err)
	}
	return membership.Request{
		Container:      by.container(),
		IdempotencyKey: idempotencyKey,
		Content:        append([]byte(operation+" "), content...),
	}, nil
}
