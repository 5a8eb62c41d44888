// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
)

const (
	// mostOpening bounds how many tokens are verified at once, and mostOfAddress how many of one address. Who sends
	// worthless tokens keeps no one else from signing in.
	mostOpening   = 8
	mostOfAddress = mostOpening / 2
	// openPatience is how long the verification of a token may take.
	openPatience = 30 * time.Second
	// checkPause is the time between two checks of a caller.
	checkPause = 15 * time.Second
	// idleTime is how long a caller without a request is kept.
	idleTime = 30 * time.Minute
)

// Caller serves the page to one caller.
type Caller interface {
	http.Handler
	// Run works for the caller until the context ends.
	Run(ctx context.Context)
	// Check returns an error if the caller may not be served any more.
	Check(ctx context.Context) error
	// User returns the name of the caller, according to the API server.
	User() string
}

// Login is how a caller wants to be served.
type Login struct {
	Token string
	// Namespace is the only one that is shown; empty for all.
	Namespace string
	// Address is that of the caller's connection.
	Address string
	// ByForm is set if the caller signed in by the form, and can sign out.
	ByForm bool
}

// Open verifies the token of a login, and returns what serves its owner.
type Open func(ctx context.Context, login Login) (Caller, error)

// Bounds limit the callers.
type Bounds struct {
	// Callers is how many callers there are at once.
	Callers int
	// IsFull reports whether the server has no memory for another caller.
	IsFull func() bool
}

// table is the callers that are served now.
type table struct {
	Bounds
	open    Open
	clock   clock.WithTicker
	opening singleflight.Group

	mutex sync.Mutex
	// verified counts the tokens that are verified now, by address.
	verified map[string]int
	// isOver is set when the server ends.
	isOver bool
	all    map[string]*session
	live   sync.WaitGroup
}

// session is a caller who is served until end is called.
type session struct {
	Caller
	ctx    context.Context //nolint:containedctx // A session outlives the request that begins it.
	end    context.CancelFunc
	active int
	used   time.Time
}

func newTable(open Open, bounds Bounds, clk clock.WithTicker) *table {
	return &table{Bounds: bounds, open: open, clock: clk, verified: map[string]int{}, all: map[string]*session{}}
}

// run ends all sessions when the context ends.
func (t *table) run(ctx context.Context) {
	<-ctx.Done()
	t.mutex.Lock()
	t.isOver = true
	for _, one := range t.all {
		one.end()
	}
	t.mutex.Unlock()
	t.live.Wait()
}

// begin verifies a token, and serves its owner under a name. Concurrent calls with one name are one.
func (t *table) begin(name string, login Login) error {
	_, err, _ := t.opening.Do(name, func() (any, error) {
		if t.has(name) {
			return nil, nil
		}
		if !t.enter(login.Address) {
			return nil, busy("many callers sign in: try again")
		}
		defer t.leave(login.Address)
		ctx, stop := context.WithTimeout(context.Background(), openPatience)
		defer stop()
		caller, err := t.open(ctx, login)
		if err != nil {
			return nil, err
		}
		return nil, t.add(name, caller)
	})
	return err
}

// enter counts a token that is verified for an address, and reports whether there is room for it.
func (t *table) enter(address string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	total := 0
	for _, count := range t.verified {
		total += count
	}
	if total >= mostOpening || t.verified[address] >= mostOfAddress {
		return false
	}
	t.verified[address]++
	return true
}

func (t *table) leave(address string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.verified[address]--; t.verified[address] == 0 {
		delete(t.verified, address)
	}
}

func busy(message string) error {
	return Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", message)
}

func (t *table) has(name string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.all[name] != nil
}

// add serves a caller. If there is no room, an idle session of the user with most of them ends.
func (t *table) add(name string, caller Caller) error {
	isFull := t.IsFull()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.isOver {
		return busy("the server ends")
	}
	if (isFull || len(t.all) >= t.Callers) && !t.dropIdle(caller.User()) {
		return busy("the server has no room for another caller: try again later")
	}
	ctx, end := context.WithCancel(context.Background())
	one := &session{Caller: caller, ctx: ctx, end: end, used: t.clock.Now()}
	t.all[name] = one
	t.live.Go(func() { t.keep(name, one) })
	return nil
}

// dropIdle ends an idle session for another one of a user, and reports whether there is one: of the user with most
// sessions, the one that is idle longest. Only sessions of the user itself and of those with more sessions than the
// user count.
func (t *table) dropIdle(user string) bool {
	sessions := map[string]int{}
	for _, one := range t.all {
		sessions[one.User()]++
	}
	own := sessions[user]
	sessions[user]++
	dropped := ""
	for name, one := range t.all {
		of := sessions[one.User()]
		if one.active > 0 || of <= own {
			continue
		}
		if dropped == "" {
			dropped = name
			continue
		}
		best := t.all[dropped]
		if most := sessions[best.User()]; of > most || of == most && one.used.Before(best.used) {
			dropped = name
		}
	}
	if dropped == "" {
		return false
	}
	t.all[dropped].end()
	delete(t.all, dropped)
	return true
}

// keep works for a caller until the caller is idle or may not be served any more.
func (t *table) keep(name string, one *session) {
	var working sync.WaitGroup
	working.Go(func() { one.Run(one.ctx) })
	ticks := t.clock.NewTicker(checkPause)
	defer ticks.Stop()
	for one.ctx.Err() == nil {
		select {
		case <-one.ctx.Done():
		case <-ticks.C():
			if t.isIdle(one) || one.Check(one.ctx) != nil {
				one.end()
			}
		}
	}
	t.mutex.Lock()
	if t.all[name] == one {
		delete(t.all, name)
	}
	t.mutex.Unlock()
	working.Wait()
}

func (t *table) isIdle(one *session) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return one.active == 0 && t.clock.Since(one.used) >= idleTime
}

// end ends a caller.
func (t *table) end(name string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if one := t.all[name]; one != nil {
		one.end()
		delete(t.all, name)
	}
}

// errNoCaller is returned for a name without a caller.
var errNoCaller = errors.New("no caller")

// serve answers a request of a caller.
func (t *table) serve(name string, w http.ResponseWriter, r *http.Request) error {
	t.mutex.Lock()
	one := t.all[name]
	if one == nil {
		t.mutex.Unlock()
		return errNoCaller
	}
	one.active++
	t.mutex.Unlock()
	defer func() {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		one.active--
		one.used = t.clock.Now()
	}()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(one.ctx, stop)()
	one.ServeHTTP(w, r.WithContext(ctx))
	return nil
}
