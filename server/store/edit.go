// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/failure"
)

const (
	// syncInterval is how often the cache is polled for a write.
	syncInterval = 2 * time.Millisecond
	// syncTimeout bounds how long an answer waits for the cache.
	syncTimeout = 5 * time.Second
	// answerTime is how long an unconfirmed removal may still be answered by the request that made it. It
	// is equal to the pause of deployed clients, and longer than answers take. Therefore concurrent
	// removals all count as intended.
	answerTime = time.Second
)

// Edit applies an edit to a job's Membership in one optimistic update, which also records the request. It
// returns the URLs of the answer. A recorded request gets its recorded answer. Each attempt reads the list
// live, so after a conflict the edit applies to the result of the other write.
func (s *Store) Edit(ctx context.Context, job *v2alpha1.DIJob, request membership.Request, edit membership.Edit) (membership.URLs, error) {
	endpoints, err := s.EndpointsOf(ctx, job)
	if err != nil {
		return membership.URLs{}, err
	}
	if err := s.options.Rates.Wait(ctx, string(job.UID)); err != nil {
		return membership.URLs{}, err
	}
	w := &write{Store: s, request: request, edit: edit, endpoints: endpoints, arrived: s.options.Clock.Now()}
	w.request, w.uncertain = s.Claim(request)
	err = Retry(ctx, func(ctx context.Context) error {
		if err := s.options.Budget.Wait(ctx, job.UID); err != nil {
			return err
		}
		var err error
		if w.list, err = s.liveMembership(ctx, job); err != nil {
			return err
		}
		return w.attempt(ctx)
	})
	if err == nil {
		err = w.confirm(ctx)
	}
	if err != nil {
		if w.uncertain {
			s.Remember(w.request)
		}
		return membership.URLs{}, editFailure(job, err)
	}
	s.awaitCache(ctx, w.list)
	return w.answer, nil
}

// write is the write of one request, with all its attempts.
type write struct {
	*Store
	request   membership.Request
	edit      membership.Edit
	endpoints *Endpoints
	// arrived is the arrival time of the request. It decides whether the request is a repeat.
	arrived time.Time
	list    *v2alpha1.Membership
	answer  membership.URLs
	// done is the ID of the applied request: this one, or the one that it repeats.
	done string
	// pending is the ID of the unconfirmed removal that the last attempt found. pendingSince is when an
	// attempt first found it.
	pending      string
	pendingSince time.Time
	// uncertain is whether a failed attempt may have been written.
	uncertain bool
}

// attempt answers a recorded request. Otherwise it applies and writes the edit.
func (w *write) attempt(ctx context.Context) error {
	spec := &w.list.Spec
	record, err := w.Recorded(spec.Requests, w.request, w.arrived)
	if err != nil {
		return err
	}
	if record != nil {
		if w.awaitsAnswer(record) {
			return ErrNotYet
		}
		w.answer, w.done = membership.RecordedURLs(record), record.ID
		return nil
	}
	w.done = w.request.ID
	before := spec.DeepCopy()
	if w.answer, err = w.apply(); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before, spec) && !membership.MustRecord(spec, w.request) {
		return nil
	}
	membership.Record(spec, w.request, w.answer, w.options.Clock.Now(), w.Ages())
	err = w.charged(ctx, spec.JobUID, w.list, func() error { return w.Update(ctx, w.list) })
	w.uncertain = w.uncertain || IsUncertain(err)
	if apierrors.IsNotFound(err) {
		// The list was deleted since it was read. The operator recreates it.
		return ErrNotYet
	}
	return err
}

// apply applies the edit in memory. Its failures are final, because the edit is deterministic and fails
// again on the same list.
func (w *write) apply() (membership.URLs, error) {
	answer, err := w.edit.Apply(&w.list.Spec, &w.list.Status)
	var foreign *membership.ForeignNameError
	switch {
	case errors.As(err, &foreign):
		return membership.URLs{}, failure.New(failure.NotFound, "%v", err)
	case errors.Is(err, membership.ErrSizedByRule):
		return membership.URLs{}, failure.New(failure.Conflict, "%v", err)
	case err != nil:
		return membership.URLs{}, failure.New(failure.Invalid, "%v", err)
	}
	urls := answer.URLs(w.endpoints.Endpoints, &w.list.Status)
	if err := w.endpoints.Err(); err != nil {
		return membership.URLs{}, failure.From(err)
	}
	return urls, nil
}

// awaitsAnswer reports whether the request that made an unconfirmed removal may still answer it. If so,
// the current request is a different one.
func (w *write) awaitsAnswer(record *v2alpha1.RecordedRequest) bool {
	if record.ID == w.request.ID || !membership.IsUnanswered(record) {
		return false
	}
	if w.pending != record.ID {
		w.pending, w.pendingSince = record.ID, w.options.Clock.Now()
	}
	return w.options.Clock.Since(w.pendingSince) < answerTime
}

// confirm marks a removal as answered before the answer is sent, because an equal later request is a new
// removal. If confirm fails, the answer makes the sender retry, and every server recognizes the repeat.
func (w *write) confirm(ctx context.Context) error {
	list := w.list
	return Retry(ctx, func(ctx context.Context) error {
		current := list
		list = nil
		if current == nil {
			current = &v2alpha1.Membership{}
			if err := w.Live(ctx, client.ObjectKeyFromObject(w.list), current); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		if !membership.MarkAnswered(&current.Spec, w.done) {
			return nil
		}
		w.uncertain = true
		return w.mark(ctx, current)
	})
}

// mark writes a list in which a removal is marked as answered. A list that was deleted needs no mark.
func (w *write) mark(ctx context.Context, list *v2alpha1.Membership) error {
	size, err := sizeOf(list)
	if err != nil {
		return err
	}
	w.options.Budget.Charge(list.Spec.JobUID, size)
	err = w.Update(ctx, list)
	if err == nil {
		w.list = list
	}
	return client.IgnoreNotFound(err)
}

// charged writes an object within its job's budget.
func (s *Store) charged(ctx context.Context, job types.UID, object client.Object, write func() error) error {
	size, err := sizeOf(object)
	if err != nil {
		return err
	}
	if err := s.options.Budget.Spend(ctx, job, size); err != nil {
		return err
	}
	err = write()
	if err != nil && !IsUncertain(err) {
		s.options.Budget.Refund(job, size)
	}
	return err
}

func sizeOf(object client.Object) (int, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return 0, fmt.Errorf("encoding %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return len(content), nil
}

// awaitCache waits until the cache contains a write. Otherwise a client could read a list older than its
// answer, and end its job over a URL that disappears. The wait is bounded, because the write is done in
// either case.
func (s *Store) awaitCache(ctx context.Context, written *v2alpha1.Membership) {
	key := client.ObjectKeyFromObject(written)
	err := wait.PollUntilContextTimeout(ctx, syncInterval, syncTimeout, true, func(ctx context.Context) (bool, error) {
		var known v2alpha1.Membership
		if err := s.Get(ctx, key, &known); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		order, err := resourceversion.CompareResourceVersion(known.ResourceVersion, written.ResourceVersion)
		return order >= 0, err
	})
	if err != nil {
		s.options.Log.WithValues(names.LogJob(key)...).Error(err, "Cache is stale after a write")
	}
}

// editFailure returns the failure of an edit.
func editFailure(job *v2alpha1.DIJob, err error) error {
	if isDenied(err) {
		return denied(err)
	}
	if apierrors.IsNotFound(err) {
		return failure.New(failure.NotFound, "job %s/%s is gone", job.Namespace, job.Name).Because(err)
	}
	return fmt.Errorf("writing for job %s/%s: %w", job.Namespace, job.Name, err)
}
