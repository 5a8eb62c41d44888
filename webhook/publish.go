// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/certs"
)

// keepPublished makes known the endpoint and who is to be trusted, and then lets
// the server count as ready; again whenever there is something else to serve
// with, which is served with once the API servers know it.
func (s *Server) keepPublished(ctx context.Context, address string) {
	var first sync.Once
	for serving := s.current.Load(); serving != nil; {
		if !s.introduce(ctx, serving) {
			return
		}
		s.current.Store(serving)
		if !s.declare(ctx, serving) {
			serving = s.next(ctx, serving)
			continue
		}
		s.serving.Store(&servingState{address: address, bundle: serving.Bundle})
		first.Do(func() { close(s.published) })
		s.options.Log.Info("Published webhook configuration", "hosts", s.hosts)
		serving = s.follow(ctx, serving)
	}
}

// introduce publishes whom to trust beside those that others serve by, and
// waits until the API servers know it: whoever has published it may have done so
// just now. It is false at the end of the context.
func (s *Server) introduce(ctx context.Context, serving *certs.Serving) bool {
	outcome, done := s.publish(ctx, serving, &certs.Trust{KeepOthers: true})
	if !done || !outcome.Joined && !outcome.Shared {
		return done
	}
	timer := s.options.Clock.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// declare tells the other replicas what is served with before they may be called
// no more without it. It is false where that may not be served with any more.
func (s *Server) declare(ctx context.Context, serving *certs.Serving) bool {
	told := ""
	err := wait.PollUntilContextCancel(ctx, publishInterval, true, func(ctx context.Context) (bool, error) {
		_, err := s.certificates.Declare(ctx, serving)
		if err == nil || errors.Is(err, certs.ErrReplaced) {
			return true, err
		}
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			s.options.Log.Error(err, "Cannot publish serving certificate fingerprint yet; retrying")
		}
		return false, nil
	})
	return err == nil
}

// repair is when what is published is looked at again.
type repair struct {
	// dropAt is when others' authorities are dropped; alone says that they were.
	dropAt time.Time
	alone  bool
	// restoredAt is when something was last published again that was reset, and
	// pause how long it then takes at least until the next time.
	restoredAt time.Time
	pause      time.Duration
}

// next returns how long to wait, where something has changed or not.
func (r *repair) next(now time.Time, changed, rotating bool) time.Duration {
	wanted := repairInterval
	if !r.alone {
		wanted = min(wanted, r.dropAt.Sub(now))
	}
	if rotating {
		wanted = min(wanted, settleTime)
	}
	if changed {
		wanted = min(wanted, r.restoredAt.Add(r.pause).Sub(now))
	}
	return max(wanted, 0)
}

// restored takes note of whether something had been reset.
func (r *repair) restored(now time.Time, reset bool) {
	switch {
	case reset:
		r.restoredAt, r.pause = now, min(max(2*r.pause, restorePause), repairInterval)
	case now.Sub(r.restoredAt) > repairInterval:
		r.pause = 0
	}
}

// follow returns what to serve with next; nil at the end of the context. In the
// meantime what others overwrite is published again, and once everybody has
// followed only the current is published.
func (s *Server) follow(ctx context.Context, current *certs.Serving) *certs.Serving {
	next := make(chan *certs.Serving, 1)
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		found := s.next(ctx, current)
		// What is next does not wait for what cannot be published.
		stop()
		next <- found
	}()
	changes := s.watch(keeping)
	now := s.options.Clock.Now
	plan := &repair{dropAt: now().Add(s.options.Overlap)}
	for changed, rotating := false, s.repair(keeping, current, plan); ; {
		timer := s.options.Clock.NewTimer(plan.next(now(), changed, rotating))
		select {
		case found := <-next:
			timer.Stop()
			return found
		case <-changes:
			timer.Stop()
			if changed = plan.next(now(), true, rotating) > 0; changed {
				continue
			}
		case <-timer.C():
			changed = false
		}
		rotating = s.repair(keeping, current, plan)
	}
}

// repair publishes again what others have overwritten, without those whom nobody
// needs to trust any more. It reports whether others are trusted still who may be
// given up soon.
func (s *Server) repair(ctx context.Context, current *certs.Serving, plan *repair) (rotating bool) {
	gone, err := s.certificates.Declare(ctx, current)
	if err != nil && ctx.Err() == nil {
		s.options.Log.V(1).Info("Cannot publish serving certificate fingerprint", "reason", err.Error())
	}
	now := s.options.Clock.Now()
	drop := !plan.alone && !now.Before(plan.dropAt)
	outcome, done := s.publish(ctx, current, &certs.Trust{KeepOthers: !drop, Gone: gone})
	if !done {
		return false
	}
	switch {
	case outcome.Joined:
		plan.dropAt, plan.alone = now.Add(s.options.Overlap), false
	case drop:
		plan.alone = true
	}
	s.tellResets(outcome.Resets)
	plan.restored(now, len(outcome.Resets) > 0)
	return outcome.Shared && !drop
}

// tellResets makes known what others had reset.
func (s *Server) tellResets(resets []certs.Reset) {
	for i := range resets {
		reset := &resets[i]
		s.options.Log.Info("Webhook configuration was overwritten; restored it", "kind", reset.Object.GetKind(), "name", reset.Object.GetName(),
			"parts", reset.Parts, "manager", reset.Manager)
		for _, part := range reset.Parts {
			s.metrics.restorations.WithLabelValues(reset.Object.GetKind(), part).Inc()
		}
		if s.options.Recorder != nil {
			s.options.Recorder.Eventf(reset.Object, nil, corev1.EventTypeWarning, v2alpha1.ReasonConversionRestored, "Publish",
				"%s; restored", reset)
		}
	}
}

// watch returns what receives when something that is published may have changed.
func (s *Server) watch(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	s.publication.Watch(ctx, s.api, s.options.Clock, func() {
		select {
		case changes <- struct{}{}:
		default:
			// It is to be looked at already.
		}
	}, func(err error) {
		s.options.Log.V(1).Info("Cannot watch the published configuration; checking it every minute", "reason", err.Error())
	})
	return changes
}

// publish publishes until it succeeds, with what is in the way told once. It is
// not done where the context ended first.
func (s *Server) publish(ctx context.Context, serving *certs.Serving, trust *certs.Trust) (outcome *certs.Outcome, done bool) {
	told := ""
	all := &certs.Outcome{}
	err := wait.PollUntilContextCancel(ctx, publishInterval, true, func(ctx context.Context) (bool, error) {
		err := s.tryPublish(ctx, serving, trust, all)
		if err == nil {
			s.lack.Store(nil)
			return true, nil
		}
		if ctx.Err() == nil {
			s.lack.Store(&err)
			if err.Error() != told {
				told = err.Error()
				s.options.Log.Error(err, "Cannot publish webhook configuration yet; retrying")
			}
		}
		return false, nil
	})
	return all, err == nil
}

// tryPublish publishes once, into what is prepared for it, and adds to what all
// attempts came to.
func (s *Server) tryPublish(ctx context.Context, serving *certs.Serving, trust *certs.Trust, all *certs.Outcome) error {
	if err := serving.Verify(); err != nil {
		return err
	}
	if s.options.Prepare != nil {
		if err := s.options.Prepare(ctx, s.publication.Conversion(serving.Bundle)); err != nil {
			return fmt.Errorf("preparing the publication: %w", err)
		}
	}
	trust.Bundle, trust.Now = serving.Bundle, s.options.Clock.Now()
	outcome, err := s.publication.Publish(ctx, s.api, trust)
	all.Joined, all.Shared = all.Joined || outcome.Joined, outcome.Shared
	all.Resets = append(all.Resets, outcome.Resets...)
	return err
}
