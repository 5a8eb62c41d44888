// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// leaveAttempts is how often a strict client tries to disconnect from a process. leaveRetry is
	// the pause between attempts.
	leaveAttempts = 5
	leaveRetry    = 2 * time.Second
)

// linkState is the state of the connection to a listed process.
type linkState int

const (
	// connecting: the process has not answered yet.
	connecting linkState = iota
	connected
	// failed: the process did not answer in time and must be reported. A process that was connected
	// never gets this state because it stays listed until it is replaced.
	failed
	// gone: the process was connected and vanished from the list. A strict client never connects to
	// its URL again.
	gone
)

type link struct {
	state linkState
	since time.Time
	who   identity
}

// roster maintains connections to the processes that di-server lists.
type roster struct {
	*follower
	// timeout is the timeout for the first answer of a process.
	timeout time.Duration
	// joined is called when a process becomes available, left when it no longer is.
	joined func(r remote, who identity)
	left   func(url string)
	ever   bool // a process was connected

	mu    sync.Mutex // protects links
	links map[string]*link
}

func newRoster(f *follower, timeout time.Duration, joined func(remote, identity), left func(string)) *roster {
	return &roster{follower: f, timeout: timeout, joined: joined, left: left, links: map[string]*link{}}
}

// sync updates the connections for a list of URLs. An error ends a strict client.
func (r *roster) sync(ctx context.Context, urls []string) error {
	r.mu.Lock()
	var vanished []string
	for url, l := range r.links {
		switch {
		case slices.Contains(urls, url):
		case l.state == connected:
			l.state = gone
			vanished = append(vanished, url)
		case l.state != gone:
			delete(r.links, url)
		}
	}
	for _, url := range urls {
		if l := r.links[url]; l == nil || l.state == gone && !r.strict {
			r.links[url] = &link{since: time.Now()}
		}
	}
	r.mu.Unlock()
	for _, url := range vanished {
		r.log.Info("no longer listed", "url", url)
		r.left(url)
		if err := r.disconnect(ctx, url); err != nil {
			return err
		}
	}
	r.callAll(ctx)
	return nil
}

// callAll calls all processes that have not answered yet.
func (r *roster) callAll(ctx context.Context) {
	var wait sync.WaitGroup
	for _, url := range r.in(connecting) {
		wait.Go(func() { r.call(ctx, url) })
	}
	wait.Wait()
}

func (r *roster) call(ctx context.Context, url string) {
	process := remote{r.client, url}
	who, err := process.connect(ctx)
	r.mu.Lock()
	l := r.links[url]
	switch {
	case err == nil:
		l.state, l.who, r.ever = connected, who, true
	case ctx.Err() == nil && time.Since(l.since) > r.timeout:
		l.state = failed
	}
	r.mu.Unlock()
	if err != nil {
		r.log.Info("waiting for a replica", "url", url, "error", err)
		return
	}
	r.log.Info("connected", "url", url, "name", who.Name)
	r.joined(process, who)
}

// disconnect disconnects from a process. A strict client requires an answer.
func (r *roster) disconnect(ctx context.Context, url string) error {
	for attempt := 1; ; attempt++ {
		err := remote{r.client, url}.disconnect(ctx)
		if err == nil {
			return nil
		}
		if !r.strict {
			r.log.Info("cannot disconnect", "url", url, "error", err)
			return nil
		}
		if attempt == leaveAttempts || pause(ctx, leaveRetry) != nil {
			return fmt.Errorf("strict mode: %s vanished from the list and does not answer DELETE /disconnect: %w", url, err)
		}
	}
}

// in returns the URLs of the processes whose connection is in a state.
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

// who returns the identity of a connected process.
func (r *roster) who(url string) identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links[url].who
}

// forget allows connections to reported URLs again if they are still listed.
func (r *roster) forget(urls []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, url := range urls {
		delete(r.links, url)
	}
}

// podNames returns the distinct pod names of URLs of the form <pod>.<namespace>:<port>.
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
