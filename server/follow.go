// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// followRequests lets the store know since when it knows the recorded requests of coordinators.
func (s *Server) followRequests(ctx context.Context) error {
	informer, err := s.options.Cache.GetInformer(ctx, &v2alpha1.Membership{})
	if err != nil {
		return fmt.Errorf("watching Memberships: %w", err)
	}
	see := func(object any) {
		if list, isList := object.(*v2alpha1.Membership); isList {
			s.store.SeeMembership(list)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, updated any) { see(updated) }})
	if err != nil {
		return fmt.Errorf("watching Memberships: %w", err)
	}
	return nil
}

// followJobs writes the pending report of a job that finishes, and drops that of a job that is deleted.
func (s *Server) followJobs(ctx context.Context) error {
	informer, err := s.options.Cache.GetInformer(ctx, &v2alpha1.DIJob{})
	if err != nil {
		return fmt.Errorf("watching jobs: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) {
			if job, isJob := added.(*v2alpha1.DIJob); isJob {
				s.store.SeeJob(job)
			}
		},
		UpdateFunc: func(old, updated any) {
			before, isBefore := old.(*v2alpha1.DIJob)
			after, isAfter := updated.(*v2alpha1.DIJob)
			if isAfter {
				s.store.SeeJob(after)
			}
			if isBefore && isAfter && membershipVersion(before) != membershipVersion(after) {
				s.watchers.notify(after.UID)
			}
			if isBefore && isAfter && state.IsFinished(&after.Status) && !state.IsFinished(&before.Status) {
				s.reports.pending.Release(after.UID)
				for _, writer := range s.rates.both() {
					writer.Release(after.UID)
				}
			}
		},
		DeleteFunc: func(deleted any) {
			if unknown, is := deleted.(cache.DeletedFinalStateUnknown); is {
				deleted = unknown.Obj
			}
			if job, isJob := deleted.(*v2alpha1.DIJob); isJob {
				s.reports.pending.Forget(job.UID)
				s.watchers.notify(job.UID)
				for _, writer := range s.rates.both() {
					writer.Forget(job.UID)
				}
				s.rates.book.Forget(job.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching jobs: %w", err)
	}
	return nil
}
