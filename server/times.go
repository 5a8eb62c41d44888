// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"time"
)

// Times are the timeouts and intervals of the server. The zero value selects the defaults.
type Times struct {
	// Read bounds the time to receive a request.
	Read time.Duration
	// Body bounds the time to receive the body once the server reads it. Each 64 KiB received add a
	// second. Body also bounds each pause within the body. Slower bodies would keep memory from other
	// requests.
	Body time.Duration
	// Request bounds the time to answer a request, including the retries of transient failures. Clients
	// that must retry do so while the server still recognizes repeats.
	Request time.Duration
	// Hold bounds how long a GET waits for a broken watch, and for the fair queue.
	Hold time.Duration
	// Watch bounds how long a GET waits for another membership. It is shorter than Request.
	Watch time.Duration
	// Profilings is the interval between two writes of a job that reports without a pause. It is more than a
	// minute, so that the allocator's writes are also within one write a minute for each job.
	Profilings time.Duration
	// Rates is the interval between two writes of what the workers of a job with a ratio rule report.
	Rates time.Duration
	// Call bounds one API call, so that a call without an answer is retried within the request.
	Call time.Duration
	// Address bounds the wait for the pod of an unknown address. A container may run before the cache has
	// its pod's address.
	Address time.Duration
	// Successor bounds how long a write waits until the status of a coordinator shows the restart of its
	// container.
	Successor time.Duration
	// BrokenWatch is how long a watch may be broken before the server is not ready. It is shorter than the
	// timeout of deployed clients, so that they reach another server. It is longer than usual outages of
	// the API server, because these break the watches of all servers, and a Service without ready servers
	// refuses connections.
	BrokenWatch time.Duration
}

// DefaultTimes returns the default times.
func DefaultTimes() Times {
	return Times{
		Read:        15 * time.Second,
		Body:        5 * time.Second,
		Request:     25 * time.Second,
		Hold:        5 * time.Second,
		Watch:       20 * time.Second,
		Profilings:  75 * time.Second,
		Rates:       20 * time.Second,
		Call:        5 * time.Second,
		Address:     2 * time.Second,
		Successor:   10 * time.Second,
		BrokenWatch: 45 * time.Second,
	}
}

func (t Times) withDefaults() (Times, error) {
	defaults := DefaultTimes()
	t = Times{
		Read:        cmp.Or(t.Read, defaults.Read),
		Body:        cmp.Or(t.Body, defaults.Body),
		Request:     cmp.Or(t.Request, defaults.Request),
		Hold:        cmp.Or(t.Hold, defaults.Hold),
		Watch:       cmp.Or(t.Watch, defaults.Watch),
		Profilings:  cmp.Or(t.Profilings, defaults.Profilings),
		Rates:       cmp.Or(t.Rates, defaults.Rates),
		Call:        cmp.Or(t.Call, defaults.Call),
		Address:     cmp.Or(t.Address, defaults.Address),
		Successor:   cmp.Or(t.Successor, defaults.Successor),
		BrokenWatch: cmp.Or(t.BrokenWatch, defaults.BrokenWatch),
	}
	if t.Read < 0 || t.Body < 0 || t.Request < 0 || t.Hold < 0 || t.Watch < 0 || t.Profilings < 0 || t.Rates < 0 || t.Call < 0 || t.Address < 0 || t.Successor < 0 || t.BrokenWatch < 0 {
		return t, fmt.Errorf("server options: Times: %+v: must all be positive", t)
	}
	return t, nil
}
