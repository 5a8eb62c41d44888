// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"

	"opendilab.org/di-orchestrator/controllers/shards"
)

func TestAHolderEndsBeforeAnotherOperatorMayTakeItsLease(t *testing.T) {
	t.Parallel()
	const margin = time.Second
	if RetryPeriod+RenewDeadline+margin > stopAfter || stopAfter+margin > LeaseDuration {
		t.Errorf("a holder retries until %s after its renewal, ends after %s, and its Lease after %s; want a second between them",
			RetryPeriod+RenewDeadline, stopAfter, LeaseDuration)
	}
	if float64(RenewDeadline) <= leaderelection.JitterFactor*float64(RetryPeriod) || LeaseDuration%time.Second != 0 {
		t.Error("client-go refuses these times, or rounds them")
	}
	if most := interval - 100*time.Millisecond; shards.Patience > most || shards.Patience < interval/2 {
		t.Errorf("a free shard is left to others for %s; want one read of an interval of %s, less what answers differ by", shards.Patience, interval)
	}
}

// fakeLock is a lock whose requests take a time.
type fakeLock struct {
	resourcelock.Interface
	clock *clocktesting.FakeClock
	takes time.Duration
	err   error
}

func (l *fakeLock) Identity() string { return "me" }

func (l *fakeLock) Describe() string { return "di-system/lease" }

func (l *fakeLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	l.clock.Step(l.takes)
	return l.err
}

func TestALeaseIsLostUnlessItIsRenewedOrReleasedInTime(t *testing.T) {
	t.Parallel()
	type step struct {
		after, takes time.Duration
		holder       string
		err          error
	}
	renewal := step{holder: "me"}
	tests := map[string]struct {
		steps []step
		// then is the time after the last step until the Lease is lost; 0 if it is not.
		then time.Duration
	}{
		"it was renewed":                           {[]step{renewal}, stopAfter},
		"it was renewed again":                     {[]step{renewal, {after: 5 * time.Second, holder: "me"}}, stopAfter},
		"the renewal was slow":                     {[]step{{takes: 3 * time.Second, holder: "me"}}, stopAfter - 3*time.Second},
		"a renewal failed":                         {[]step{renewal, {after: 5 * time.Second, holder: "me", err: errors.New("timeout")}}, stopAfter - 5*time.Second},
		"it was released":                          {[]step{renewal, {after: 5 * time.Second}}, 0},
		"the release failed":                       {[]step{renewal, {after: 5 * time.Second, err: errors.New("timeout")}}, stopAfter - 5*time.Second},
		"the release took all the time":            {[]step{renewal, {after: 5 * time.Second, takes: stopAfter - 6*time.Second}}, 0},
		"it was never taken, as another had it":    {[]step{{holder: "me", err: errors.New("conflict")}}, 0},
		"it was taken again after it was released": {[]step{renewal, {}, {after: time.Minute, holder: "me"}}, stopAfter},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clocktesting.NewFakeClock(time.Now())
			leases := &Leases{lost: make(chan error, 1)}
			under := &fakeLock{clock: clock}
			g := &guard{Interface: under, clock: clock, lost: leases.lose}
			for _, each := range tc.steps {
				clock.Step(each.after)
				under.takes, under.err = each.takes, each.err
				if err := g.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: each.holder}); !errors.Is(err, each.err) {
					t.Fatalf("writing: %v, want %v", err, each.err)
				}
			}
			if tc.then == 0 {
				clock.Step(time.Hour)
				if len(leases.lost) > 0 {
					t.Error(<-leases.lost)
				}
				return
			}
			clock.Step(tc.then - time.Millisecond)
			if len(leases.lost) > 0 {
				t.Fatal("it is lost too early")
			}
			clock.Step(time.Millisecond)
			if len(leases.lost) == 0 {
				t.Errorf("it is not lost after %s", tc.then)
			}
		})
	}
}

func TestAProgramEndsWhenALeaseIsLost(t *testing.T) {
	t.Parallel()
	leases := &Leases{lost: make(chan error, 1)}
	lost, told := errors.New("lost"), make(chan struct{})
	leases.lose(lost)
	leases.lose(errors.New("another one"))
	err := leases.Guard(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		close(told)
		return nil
	})
	if !errors.Is(err, lost) {
		t.Errorf("it ends with %v, want %v", err, lost)
	}
	<-told

	ended := errors.New("ended")
	if err := leases.Guard(t.Context(), func(context.Context) error { return ended }); !errors.Is(err, ended) {
		t.Errorf("a program that ends by itself ends with %v, want %v", err, ended)
	}
}
