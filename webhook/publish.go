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

// keepPublished publishes the endpoint and the CA bundle, and then marks the server as ready. It
// does so again for each new serving certificate, which is served once the API servers trust it.
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

// introduce publishes the CA bundle beside those of other replicas, and waits until the API servers
// have learned it: another replica may have published it only just now. It returns false when the
// context ends.
func (s *Server) introduce(ctx context.Context, serving *certs.Serving) bool {
	s.guard.accept(serving.PathToken())
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

// declare records the serving certificate for the other replicas before they may remove its
// authority. It returns false if the authority has been replaced and must not be served.
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

// repair is the schedule of checks of the published configuration.
type repair struct {
	// dropAt is when the authorities of other replicas are removed; alone reports that they were.
	dropAt time.Time
	alone  bool
	// restoredAt is when a reset was last restored; pause is the minimum delay until the next
	// restoration.
	restoredAt time.Time
	pause      time.Duration
}

// next returns the delay until the next check, depending on whether something has changed.
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

// restored updates the backoff after a check.
func (r *repair) restored(now time.Time, reset bool) {
	switch {
	case reset:
		r.restoredAt, r.pause = now, min(max(2*r.pause, restorePause), repairInterval)
	case now.Sub(r.restoredAt) > repairInterval:
		r.pause = 0
	}
}

// follow returns the next serving certificate; nil when the context ends. Until then it restores
// configuration that other tools overwrite. Once all replicas have followed, it publishes only the
// current bundle.
func (s *Server) follow(ctx context.Context, current *certs.Serving) *certs.Serving {
	next := make(chan *certs.Serving, 1)
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		found := s.next(ctx, current)
		// The next certificate must not wait for a failing publication.
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

// repair restores overwritten configuration, without authorities that no replica serves with
// anymore. It reports whether other authorities are still published that may be removed soon.
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

// tellResets logs, counts and records the resets by other tools.
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

// watch returns a channel that receives when published configuration may have changed.
func (s *Server) watch(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	s.publication.Watch(ctx, s.api, s.options.Clock, func() {
		select {
		case changes <- struct{}{}:
		default:
			// A check is already pending.
		}
	}, func(err error) {
		s.options.Log.V(1).Info("Cannot watch the published configuration; checking it every minute", "reason", err.Error())
	})
	return changes
}

// publish retries until it succeeds, and logs each distinct error once. done is false if the
// context ended first.
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

// tryPublish prepares the definitions, publishes once, and merges the result into the outcome of
// all attempts.
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
	outcome, err := s.publication.Publish(ctx, s.api, trust, serving.PathToken())
	all.Joined, all.Shared = all.Joined || outcome.Joined, outcome.Shared
	all.Resets = append(all.Resets, outcome.Resets...)
	return err
}
