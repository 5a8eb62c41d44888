// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
)

// leaveAttempts is how often a strict client tries to disconnect from a process.
const leaveAttempts = 5

// linkState is how far the connection to a listed process has come.
type linkState int

const (
	// connecting: the process is being called for the first time.
	connecting linkState = iota
	// connected: the process answered.
	connected
	// failed: it never answered in time, or was lost; to be reported.
	failed
	// gone: it was connected and vanished from the list. In strict mode its URL
	// is never connected again.
	gone
)

type link struct {
	state  linkState
	cancel context.CancelFunc
}

// roster keeps connections to the processes that di-server lists.
type roster struct {
	strict bool
	// timeout is how long a process may take to answer for the first time; pods
	// need their time to start, and their names to be resolved.
	timeout time.Duration
	retry   time.Duration
	dialer  *peer.Dialer
	log     *slog.Logger
	// joined and left are called with processes that can be used, or no longer.
	joined func(url string, identity peer.Identity)
	left   func(url string)

	mu    sync.Mutex // protects links and ever
	links map[string]*link
	ever  bool // a process was connected
}

// sync brings the connections in line with a list of URLs. An error ends a
// strict client.
func (r *roster) sync(ctx context.Context, crew *crew, urls []string) error {
	for _, url := range urls {
		r.add(ctx, crew, url)
	}
	for _, url := range r.vanished(urls) {
		if err := r.drop(ctx, url); err != nil {
			return err
		}
	}
	return nil
}

// add begins to connect to a URL that is new.
func (r *roster) add(ctx context.Context, crew *crew, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, ok := r.links[url]; ok && (l.state != gone || r.strict) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	l := &link{state: connecting, cancel: cancel}
	r.links[url] = l
	crew.start(func(context.Context) error {
		defer cancel()
		r.connect(ctx, url, l)
		return nil
	})
}

func (r *roster) connect(ctx context.Context, url string, l *link) {
	client := r.dialer.Client(url)
	for {
		identity, err := client.Connect(ctx)
		if err == nil {
			r.connected(url, l, identity)
			return
		}
		r.log.Info("waiting for a replica", "url", url, "error", err)
		if pause(ctx, r.retry) != nil {
			r.settle(url, l, failed)
			return
		}
	}
}

func (r *roster) connected(url string, l *link, identity peer.Identity) {
	if r.settle(url, l, connected) {
		r.log.Info("connected", "url", url, "peer", identity.Role, "name", identity.Name)
		r.joined(url, identity)
	}
}

// settle ends the first call of a process, unless the list has moved on.
func (r *roster) settle(url string, l *link, state linkState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.links[url] != l || l.state != connecting {
		return false
	}
	l.state = state
	r.ever = r.ever || state == connected
	return true
}

// everConnected reports whether any process ever answered.
func (r *roster) everConnected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ever
}

// vanished returns the URLs that are known and no longer listed.
func (r *roster) vanished(urls []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for url, l := range r.links {
		if l.state != gone && !slices.Contains(urls, url) {
			all = append(all, url)
		}
	}
	slices.Sort(all)
	return all
}

// drop ends the connection to a process that is no longer listed. A strict
// client insists on taking leave of it.
func (r *roster) drop(ctx context.Context, url string) error {
	r.mu.Lock()
	l := r.links[url]
	wasConnected := l.state == connected
	l.cancel()
	l.state = gone
	if !wasConnected {
		delete(r.links, url)
	}
	r.mu.Unlock()
	if !wasConnected {
		return nil
	}
	r.log.Info("no longer listed", "url", url)
	r.left(url)
	return r.takeLeave(ctx, url)
}

func (r *roster) takeLeave(ctx context.Context, url string) error {
	client := r.dialer.Client(url)
	if !r.strict {
		if err := client.Disconnect(ctx); err != nil {
			r.log.Info("could not disconnect", "url", url, "error", err)
		}
		return nil
	}
	for attempt := 1; ; attempt++ {
		err := client.Disconnect(ctx)
		if err == nil {
			return nil
		}
		if attempt == leaveAttempts || pause(ctx, r.retry) != nil {
			return fmt.Errorf("strict mode: %s vanished from the list and does not answer DELETE /disconnect: %w", url, err)
		}
	}
}

// lose gives a connected process up, to be reported. A strict client never does.
func (r *roster) lose(url string, err error) {
	if r.strict {
		r.log.Warn("a connected replica does not answer, waiting for it", "url", url, "error", err)
		return
	}
	r.mu.Lock()
	l, ok := r.links[url]
	lost := ok && l.state == connected
	if lost {
		l.state = failed
	}
	r.mu.Unlock()
	if lost {
		r.log.Warn("a connected replica is lost", "url", url, "error", err)
		r.left(url)
	}
}

// takeLeaveOfAll tells all connected processes, at once and without insisting.
func (r *roster) takeLeaveOfAll(ctx context.Context) {
	var wait sync.WaitGroup
	for _, url := range r.in(connected) {
		wait.Go(func() {
			if err := r.dialer.Client(url).Disconnect(ctx); err != nil {
				r.log.Info("could not disconnect", "url", url, "error", err)
			}
		})
	}
	wait.Wait()
}

// failed returns the URLs to report.
func (r *roster) failed() []string {
	return r.in(failed)
}

// in returns the URLs whose connection is in a state.
func (r *roster) in(state linkState) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for url, l := range r.links {
		if l.state == state {
			all = append(all, url)
		}
	}
	slices.Sort(all)
	return all
}

// forget lets reported URLs be connected again, should they still be listed.
func (r *roster) forget(urls []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, url := range urls {
		delete(r.links, url)
	}
}

// podNames turns URLs of the form <pod>.<namespace>:<port> into pod names, each
// once.
func podNames(urls []string) []string {
	var names []string
	for _, url := range urls {
		host, _, _ := strings.Cut(url, ":")
		if dot := strings.LastIndex(host, "."); dot >= 0 {
			host = host[:dot]
		}
		if !slices.Contains(names, host) {
			names = append(names, host)
		}
	}
	return names
}
