// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
)

const (
	// settleInterval is how often the cache is asked for what was written.
	settleInterval = 2 * time.Millisecond
	// settleTime bounds how long an answer waits for the cache.
	settleTime = 5 * time.Second
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
	var list *v2alpha1.Membership
	err := persist(ctx, func(ctx context.Context) error {
		var err error
		if list, err = s.liveMembership(ctx, by.job); err != nil {
			return err
		}
		answer, err = s.attempt(ctx, list, request, edit)
		return err
	})
	if err != nil {
		return membership.URLs{}, changeFailure(by.job, err)
	}
	s.settle(ctx, list)
	return answer, nil
}

// attempt answers a repeat, or makes an edit and writes it.
func (s *Server) attempt(ctx context.Context, list *v2alpha1.Membership, request membership.Request, edit edit) (membership.URLs, error) {
	now := s.options.Clock.Now()
	answer, repeat, err := membership.Recall(&list.Spec, request, now)
	if err != nil {
		return membership.URLs{}, failure(KindConflict, "%v", err)
	}
	if repeat {
		return answer, nil
	}
	before := list.Spec.DeepCopy()
	if answer, err = edit(list); err != nil {
		return membership.URLs{}, err
	}
	if equality.Semantic.DeepEqual(before, &list.Spec) {
		return answer, nil
	}
	membership.Record(&list.Spec, request, answer, now)
	err = s.store.update(ctx, list)
	if apierrors.IsNotFound(err) {
		// Deleted since it was read; the operator makes it again.
		return membership.URLs{}, errNotYet
	}
	return answer, err
}

// settle waits until the cache knows a list, so that a client never reads a
// list from before the answer that it has: a URL that disappears makes it end
// its job. A cache that stays behind is waited for only so long, as the write
// is done in any case.
func (s *Server) settle(ctx context.Context, written *v2alpha1.Membership) {
	key := client.ObjectKeyFromObject(written)
	err := wait.PollUntilContextTimeout(ctx, settleInterval, settleTime, true, func(ctx context.Context) (bool, error) {
		var known v2alpha1.Membership
		if err := s.store.get(ctx, key, &known); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		order, err := resourceversion.CompareResourceVersion(known.ResourceVersion, written.ResourceVersion)
		return order >= 0, err
	})
	if err != nil {
		s.options.Log.Error(err, "The cache is behind what was written", "membership", key)
	}
}

// changeFailure returns what a client is told of a failed write.
func changeFailure(job *v2alpha1.DIJob, err error) error {
	if apierrors.IsNotFound(err) {
		return failure(KindNotFound, "job %s/%s is gone", job.Namespace, job.Name).because(err)
	}
	return fmt.Errorf("writing for job %s/%s: %w", job.Namespace, job.Name, err)
}

// liveMembership reads a job's Membership live. While there is none, or only
// one that is going or that of a predecessor of the same name, it returns
// errNotYet: the operator makes it, for as long as the job exists.
func (s *Server) liveMembership(ctx context.Context, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	key := client.ObjectKeyFromObject(job)
	var list v2alpha1.Membership
	err := s.store.live(ctx, key, &list)
	if err == nil && list.Spec.JobUID == job.UID && list.DeletionTimestamp == nil {
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
