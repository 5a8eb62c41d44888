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
	"slices"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/pace"
)

// callTimeout is the timeout of deployed clients.
const callTimeout = 30 * time.Second

// Tally counts the calls of one URL. A call without an answer or with an error status has failed.
type Tally struct {
	URL string
	// Kept means that the calls share a connection.
	Kept bool
	pace.Tally
}

// callAll calls URLs at a fixed rate, over a new connection for each call, as coordinators do, and
// also over a kept one if required. /tallies returns the counts of each URL so far. /stop stops the
// calls first.
func callAll(ctx context.Context, address string, urls []string, keep bool, every time.Duration) error {
	addresses, err := resolve(ctx, urls)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	var probers []*pace.Prober
	var tallies []Tally
	for _, kept := range slices.Compact([]bool{false, keep}) {
		sender := newSender(addresses, kept)
		for _, one := range urls {
			prober := &pace.Prober{Name: one, Every: every, Call: func(ctx context.Context, _ int) error { return send(ctx, sender, one) }}
			prober.Start(ctx)
			probers, tallies = append(probers, prober), append(tallies, Tally{URL: one, Kept: kept})
		}
	}
	return listen(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		for i, prober := range probers {
			if r.URL.Path == "/stop" {
				prober.Stop()
			}
			tallies[i].Add(prober.Take())
		}
		// The client may have disconnected.
		_ = json.NewEncoder(w).Encode(tallies)
	}))
}

// newSender returns a client that connects to resolved addresses.
func newSender(addresses map[string]string, kept bool) *http.Client {
	dialer := &net.Dialer{}
	return &http.Client{Timeout: callTimeout, Transport: &http.Transport{
		DisableKeepAlives: !kept,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addresses[address])
		},
	}}
}

// resolve looks up each name once because name resolution is not part of the measurement.
func resolve(ctx context.Context, urls []string) (map[string]string, error) {
	addresses := map[string]string{}
	for _, one := range urls {
		parsed, err := url.Parse(one)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", one, err)
		}
		var found []string
		for len(found) == 0 {
			// DNS may not know a new Service yet.
			if found, err = net.DefaultResolver.LookupHost(ctx, parsed.Hostname()); ctx.Err() != nil {
				return nil, fmt.Errorf("finding %s: %w", one, err)
			}
		}
		addresses[parsed.Host] = net.JoinHostPort(found[0], parsed.Port())
	}
	return addresses, nil
}

func send(ctx context.Context, sender *http.Client, to string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return err
	}
	response, err := sender.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}
