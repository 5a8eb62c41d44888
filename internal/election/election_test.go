// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"opendilab.org/di-orchestrator/internal/election"
)

const (
	lease = 15 * time.Second
	renew = 10 * time.Second
	retry = 2 * time.Second
	// wait is how long one who is not elected waits at most until it looks again.
	wait = time.Duration((1 + leaderelection.JitterFactor) * float64(retry))
)

// server has a lease, as the API server has it.
type server struct {
	mutex   sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	// at is when it was last written as something else than it was: whoever reads it
	// counts from then.
	at time.Time
}

// candidate is one who asks the server for the lease.
type candidate struct {
	server *server
	name   string
	// delay is how long the server takes to hear of a call, and the same again until
	// its answer is there; nil for none.
	delay func() time.Duration
	// read is the version that was read last.
	read int
}

func (c *candidate) travel(ctx context.Context) error {
	if c.delay == nil {
		return ctx.Err()
	}
	select {
	case <-time.After(c.delay()):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call does something at the server; an answer that is lost does not undo it.
func (c *candidate) call(ctx context.Context, do func(*server) error) error {
	// As clients of an election have it.
	ctx, cancel := context.WithTimeout(ctx, renew/2)
	defer cancel()
	if err := c.travel(ctx); err != nil {
		return err
	}
	c.server.mutex.Lock()
	err := do(c.server)
	version := c.server.version
	c.server.mutex.Unlock()
	if lost := c.travel(ctx); lost != nil {
		return lost
	}
	if err == nil {
		c.read = version
	}
	return err
}

func (c *candidate) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var found resourcelock.LeaderElectionRecord
	err := c.call(ctx, func(s *server) error {
		if s.record == nil {
			return apierrors.NewNotFound(coordinationv1.Resource("leases"), "operator")
		}
		found = *s.record
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(found)
	return &found, raw, err
}

func (c *candidate) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.call(ctx, func(s *server) error {
		if s.record != nil {
			return apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), "operator")
		}
		s.put(&record)
		return nil
	})
}

func (c *candidate) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return c.call(ctx, func(s *server) error {
		if s.record == nil || s.version != c.read {
			return apierrors.NewConflict(coordinationv1.Resource("leases"), "operator", errors.New("it was written"))
		}
		s.put(&record)
		return nil
	})
}

func (*candidate) RecordEvent(string) {}
func (c *candidate) Identity() string { return c.name }
func (*candidate) Describe() string   { return "system/operator" }

func (s *server) put(record *resourcelock.LeaderElectionRecord) {
	if !isSame(s.record, record) {
		s.at = time.Now()
	}
	s.record = record
	s.version++
}

// isSame reports whether candidates take two records for one, which they compare as JSON.
func isSame(one, other *resourcelock.LeaderElectionRecord) bool {
	encodedOne, failedOne := json.Marshal(one)
	encodedOther, failedOther := json.Marshal(other)
	return failedOne == nil && failedOther == nil && bytes.Equal(encodedOne, encodedOther)
}

// mayBeAnothers reports whether somebody else may hold the lease that one has held.
func (s *server) mayBeAnothers(one string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.record.HolderIdentity != one || time.Since(s.at) > lease
}

func (s *server) holder() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.record == nil {
		return ""
	}
	return s.record.HolderIdentity
}

// give gives the lease to somebody, by force.
func (s *server) give(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	record := *s.record
	record.HolderIdentity = name
	s.put(&record)
}

// program is one that campaigns.
type program struct {
	*election.Election
	stop context.CancelFunc
	// ended has what the election ended with.
	ended chan error
	// terms has an item when a term begins, and one when it has ended.
	terms chan string
	// left is closed when the end of a term may be over.
	left chan struct{}
}

func campaign(t *testing.T, as *candidate, act func(context.Context) error) *program {
	t.Helper()
	p := &program{ended: make(chan error, 1), terms: make(chan string, 1000), left: make(chan struct{})}
	options := election.Options{
		Name: "test", Lease: lease, Renew: renew, Retry: retry, Log: logr.Discard(),
		Act: func(term context.Context) error {
			p.terms <- "begun"
			err := act(term)
			p.terms <- "ended"
			return err
		},
	}
	if as != nil {
		options.Lock = as
	}
	p.Election = election.New(options)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	go func() { p.ended <- p.Run(ctx) }()
	return p
}

func untilTheEnd(term context.Context) error {
	<-term.Done()
	return nil
}

func (p *program) expect(t *testing.T, want string) {
	t.Helper()
	if got := <-p.terms; got != want {
		t.Fatalf("the term has %s, want %s", got, want)
	}
	if elected := p.IsElected(); elected != (want == "begun") {
		t.Fatalf("elected: %t, as the term has %s", elected, want)
	}
}

func (p *program) expectEnd(t *testing.T, want error) {
	t.Helper()
	if err := <-p.ended; !errors.Is(err, want) {
		t.Errorf("the election ends with %v, want %v", err, want)
	}
}

func TestOneThatStopsGivesTheLeaseBackWhenItHasCeasedToAct(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		finishing := make(chan struct{})
		first := campaign(t, &candidate{server: s, name: "first"}, func(term context.Context) error {
			<-term.Done()
			<-finishing
			return nil
		})
		first.expect(t, "begun")
		second := campaign(t, &candidate{server: s, name: "second"}, untilTheEnd)
		first.stop()
		<-time.After(5 * lease)
		if s.holder() != "first" || second.IsElected() {
			t.Errorf("%q holds the lease while the first one has not ended", s.holder())
		}
		close(finishing)
		stopped := time.Now()
		first.expect(t, "ended")
		first.expectEnd(t, nil)
		second.expect(t, "begun")
		if waited := time.Since(stopped); waited > wait {
			t.Errorf("the second one was elected after %s, want at once", waited)
		}
		second.stop()
		second.expectEnd(t, nil)
		if s.holder() != "" {
			t.Errorf("%q holds the lease at the end", s.holder())
		}
	})
}

func TestOneWhoseLeaseIsAnothersEndsItsTermAtOnceAndCanBeElectedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := campaign(t, &candidate{server: s, name: "first"}, untilTheEnd)
		first.expect(t, "begun")
		<-time.After(time.Minute)
		taken := time.Now()
		s.give("somebody")
		first.expect(t, "ended")
		if took := time.Since(taken); took > retry {
			t.Errorf("it went on to act for %s", took)
		}
		first.expect(t, "begun")
		if waited := time.Since(taken); waited < lease {
			t.Errorf("it was elected again after %s, while the other may act", waited)
		}
		first.stop()
		first.expectEnd(t, nil)
	})
}

func TestOneThatCannotReachTheServerCeasesToActBeforeAnotherBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var cut sync.Map
		first := campaign(t, &candidate{server: s, name: "first", delay: func() time.Duration {
			if _, is := cut.Load("first"); is {
				return time.Hour
			}
			return 0
		}}, untilTheEnd)
		first.expect(t, "begun")
		second := campaign(t, &candidate{server: s, name: "second"}, untilTheEnd)
		<-time.After(time.Minute)
		cut.Store("first", true)
		since := time.Now()
		first.expect(t, "ended")
		if second.IsElected() {
			t.Error("both acted")
		}
		second.expect(t, "begun")
		if waited := time.Since(since); waited > lease+2*wait {
			t.Errorf("nobody acted for %s", waited)
		}
		cut.Clear()
		second.stop()
		second.expectEnd(t, nil)
		first.expect(t, "begun")
		first.stop()
		first.expectEnd(t, nil)
	})
}

func TestATermLastsNoLongerForAnAnswerThatWasLate(t *testing.T) {
	t.Parallel()
	// The third call, which renews the lease, is answered late, and none after it.
	endsInTime(t, 7, func(call int32) time.Duration {
		switch {
		case call == 6:
			return renew/2 - time.Millisecond
		case call > 6:
			return time.Hour
		}
		return 0
	})
}

func TestATermLastsNoLongerForARenewalThatWasTriedAgain(t *testing.T) {
	t.Parallel()
	// The third call renews the lease, and its answer is lost; the fifth tries the same
	// again, and none is answered after it.
	endsInTime(t, 11, func(call int32) time.Duration {
		if call == 6 || call > 10 {
			return time.Hour
		}
		return 0
	})
}

// endsInTime checks that a term has ended before the lease may be another's, where each
// call of the server takes its time; at least so many are made.
func endsInTime(t *testing.T, least int32, delay func(call int32) time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var calls atomic.Int32
		first := campaign(t, &candidate{server: s, name: "first", delay: func() time.Duration { return delay(calls.Add(1)) }}, untilTheEnd)
		first.expect(t, "begun")
		first.expect(t, "ended")
		if s.mayBeAnothers("first") || calls.Load() < least {
			t.Errorf("it acted for %s after the lease was renewed, with %d calls", time.Since(s.at), calls.Load()/2)
		}
		first.stop()
		first.expectEnd(t, nil)
	})
}

func TestOneThatFailsGivesTheLeaseBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		broken := errors.New("broken")
		first := campaign(t, &candidate{server: s, name: "first"}, func(context.Context) error { return broken })
		first.expectEnd(t, broken)
		if s.holder() != "" || first.IsElected() && s.record == nil {
			t.Errorf("%q holds the lease", s.holder())
		}
	})
}

func TestOneThatIsAloneActsForAsLongAsItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alone := campaign(t, nil, untilTheEnd)
		alone.expect(t, "begun")
		alone.stop()
		alone.expectEnd(t, nil)
		if alone.IsElected() {
			t.Error("it is elected though it has ended")
		}
	})
}

// However slow the server is, and whoever is cut off for whatever time, never two act.
func TestNeverTwoActAndSoonerOrLaterOneDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			var mutex sync.Mutex
			random := rand.New(rand.NewPCG(seed, 1)) // it is to be the same each time
			delay := func() time.Duration {
				mutex.Lock()
				defer mutex.Unlock()
				if random.IntN(10) == 0 {
					return time.Duration(random.IntN(20_000)) * time.Millisecond
				}
				return time.Duration(random.IntN(2500)) * time.Millisecond
			}
			acting, terms := 0, 0
			var all []*program
			for _, name := range []string{"first", "second", "third"} {
				all = append(all, campaign(t, &candidate{server: s, name: name, delay: delay}, func(term context.Context) error {
					mutex.Lock()
					acting++
					terms++
					if acting > 1 {
						t.Errorf("seed %d: %d act at a time", seed, acting)
					}
					mutex.Unlock()
					<-term.Done()
					if s.mayBeAnothers(name) {
						t.Errorf("seed %d: a term ends when another one may have begun", seed)
					}
					mutex.Lock()
					acting--
					mutex.Unlock()
					return nil
				}))
			}
			<-time.After(30 * time.Minute)
			for _, one := range all {
				one.stop()
				one.expectEnd(t, nil)
			}
			if terms < 2 {
				t.Errorf("seed %d: %d terms, want more", seed, terms)
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (s transport) RoundTrip(request *http.Request) (*http.Response, error) { return s(request) }

func TestNothingIsSentAfterTheEndOfATerm(t *testing.T) {
	t.Parallel()
	term, end := context.WithCancel(t.Context())
	sent := 0
	fenced := election.Fence(term)(transport(func(request *http.Request) (*http.Response, error) {
		sent++
		return &http.Response{Body: http.NoBody}, request.Body.Close()
	}))
	send := func() (closed bool, err error) {
		body := &watchedBody{Reader: strings.NewReader("{}")}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/api", body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := fenced.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		return body.closed, err
	}
	if closed, err := send(); !closed || err != nil || sent != 1 {
		t.Errorf("in the term: sent %d, closed %t, %v", sent, closed, err)
	}
	end()
	if closed, err := send(); !closed || !errors.Is(err, context.Canceled) || sent != 1 {
		t.Errorf("after it: sent %d, closed %t, %v", sent, closed, err)
	}
}

type watchedBody struct {
	io.Reader
	closed bool
}

func (b *watchedBody) Close() error {
	b.closed = true
	return nil
}
