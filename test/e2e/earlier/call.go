// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// callTimeout is how long deployed clients wait for an answer.
	callTimeout = 30 * time.Second
	// slowCall is after how long a call counts as one that hangs.
	slowCall = 5 * time.Second
	// toldFailures bounds how many failures are told.
	toldFailures = 20
)

// Tally is what came of the calls of one URL.
type Tally struct {
	URL string `json:"url"`
	// Calls got an answer, or did not; Failed got none, or one of a fault; Slow took
	// more than five seconds; Denied were answered with a status of 4xx.
	Calls    int           `json:"calls"`
	Failed   int           `json:"failed"`
	Slow     int           `json:"slow"`
	Denied   int           `json:"denied"`
	Slowest  time.Duration `json:"slowest"`
	Failures []string      `json:"failures"`

	mu sync.Mutex
}

// caller calls URLs again and again, each time by a connection of its own, as
// coordinators do.
type caller struct {
	tallies []*Tally
	sender  *http.Client
	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

// callAll calls until it is told to stop, and then tells what came of it.
func callAll(ctx context.Context, address string, urls []string, every time.Duration) error {
	addresses, err := resolve(ctx, urls)
	if err != nil {
		return err
	}
	dialer := &net.Dialer{}
	c := &caller{stop: make(chan struct{}), sender: &http.Client{Timeout: callTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addresses[address])
		},
	}}}
	for _, one := range urls {
		tally := &Tally{URL: one, Failures: []string{}}
		c.tallies = append(c.tallies, tally)
		c.running.Go(func() { c.call(ctx, tally, every) })
	}
	return listen(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stop" {
			c.once.Do(func() { close(c.stop) })
			c.running.Wait()
		}
		for _, tally := range c.tallies {
			tally.mu.Lock()
			defer tally.mu.Unlock()
		}
		// Who asked may be gone.
		_ = json.NewEncoder(w).Encode(c.tallies)
	}))
}

// resolve looks each name up once: how names are found is not what is counted.
func resolve(ctx context.Context, urls []string) (map[string]string, error) {
	addresses := map[string]string{}
	for _, one := range urls {
		parsed, err := url.Parse(one)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", one, err)
		}
		var found []string
		for len(found) == 0 {
			// A Service that was made a moment ago is not known yet.
			if found, err = net.DefaultResolver.LookupHost(ctx, parsed.Hostname()); ctx.Err() != nil {
				return nil, fmt.Errorf("finding %s: %w", one, err)
			}
		}
		addresses[parsed.Host] = net.JoinHostPort(found[0], parsed.Port())
	}
	return addresses, nil
}

func (c *caller) call(ctx context.Context, tally *Tally, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.stop:
			return
		case <-ticker.C:
			c.running.Go(func() {
				begun := time.Now()
				status, err := c.send(ctx, tally.URL)
				tally.add(begun, status, err)
			})
		}
	}
}

func (c *caller) send(ctx context.Context, to string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return 0, err
	}
	response, err := c.sender.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func (t *Tally) add(begun time.Time, status int, err error) {
	took := time.Since(begun)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Calls++
	t.Slowest = max(t.Slowest, took)
	slow, failed := took > slowCall, err != nil || status >= http.StatusInternalServerError
	switch {
	case failed:
		t.Failed++
	case status >= http.StatusBadRequest:
		t.Denied++
	}
	if slow {
		t.Slow++
	}
	if failed && len(t.Failures) < toldFailures || slow && len(t.Failures) < toldFailures/2 {
		t.Failures = append(t.Failures, fmt.Sprintf("%s after %s: %d %v", begun.Format(time.StampMilli), took, status, err))
	}
}
