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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
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
// the edit is recreated on what that left.
func (s *Server) change(ctx context.Context, by *caller, request membership.Request, edit edit) (membership.URLs, error) {
	w := &write{store: s.store, request: request, arrived: s.options.Clock.Now(), clock: s.options.Clock, watches: s.options.Watches, budget: s.budget}
	w.request.ID, w.uncertain = s.unanswered.take(request)
	err := persist(ctx, func(ctx context.Context) error {
		if err := s.budget.wait(ctx, by.job.UID); err != nil {
			return err
		}
		var err error
		if w.list, err = s.liveMembership(ctx, by.job); err != nil {
			return err
		}
		return w.attempt(ctx, edit)
	})
	if err == nil {
		err = w.confirm(ctx)
	}
	if err != nil {
		if w.uncertain {
			s.unanswered.add(w.request)
		}
		return membership.URLs{}, changeFailure(by.job, err)
	}
	s.settle(ctx, w.list)
	return w.answer, nil
}

// write is the write of one request, however often it is attempted.
type write struct {
	store   store
	request membership.Request
	// arrived is when the request came: a repeat that has to wait is one still.
	arrived time.Time
	clock   clock.PassiveClock
	watches *Watches
	budget  *budget
	list    *v2alpha1.Membership
	answer  membership.URLs
	// done is the ID of the request that was done: this one, or that which it repeats.
	done string
	// met is the ID of the removal that an attempt has last met unanswered, and metAt
	// when it did first.
	met   string
	metAt time.Time
	// uncertain says that an attempt, or that of the same request sent before, may
	// have been done though it failed, so that only the request's record tells.
	uncertain bool
}

// attempt answers what was done already, or makes an edit and writes it.
func (w *write) attempt(ctx context.Context, edit edit) error {
	record, err := recorded(w.list.Spec.Requests, w.request, w.arrived, w.watches)
	if err != nil {
		return err
	}
	if record != nil {
		if w.awaitsAnswer(record) {
			return errNotYet
		}
		w.answer, w.done = membership.RecordedURLs(record), record.ID
		return nil
	}
	w.done = w.request.ID
	before := w.list.Spec.DeepCopy()
	if w.answer, err = edit(w.list); err != nil {
		// Made of what is there, it fails on the same again.
		return asFailure(err)
	}
	if equality.Semantic.DeepEqual(before, &w.list.Spec) && !membership.MustRecord(&w.list.Spec, w.request) {
		return nil
	}
	membership.Record(&w.list.Spec, w.request, w.answer, w.clock.Now())
	err = w.budget.charged(ctx, w.list.Spec.JobUID, w.list, 0, func() error { return w.store.update(ctx, w.list) })
	w.uncertain = w.uncertain || isUncertain(err)
	if apierrors.IsNotFound(err) {
		// Deleted since it was read; the operator makes it again.
		return errNotYet
	}
	return err
}

// recorded returns the record of a request that was done already; nil where it
// was not. Time in which the API server could not be watched does not count: who
// could not be answered meanwhile has sent its request again and again.
func recorded(records []v2alpha1.RecordedRequest, request membership.Request, arrived time.Time, watches *Watches,
) (*v2alpha1.RecordedRequest, error) {
	for _, at := range []time.Time{arrived, watches.undisturbed(arrived)} {
		record, err := membership.FindRecord(records, request, at)
		if err != nil {
			return nil, failure(KindConflict, "%v", err)
		}
		if record != nil {
			return record, nil
		}
	}
	return nil, nil
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
		s.options.Log.WithValues(names.LogJob(key)...).Error(err, "Cache is stale after a write")
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
