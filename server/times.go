// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"time"
)

// Times are how long the server waits for what. The zero value is the default.
type Times struct {
	// Read bounds how long a client may take to send its request.
	Read time.Duration
	// Body is how long it may take to send the body once it is read, which may be
	// after a wait that was not the client's, beside a second for each 64 KiB that
	// have come, and how long it may pause. What is slower is in the way of others,
	// as bodies have room together.
	Body time.Duration
	// Request bounds how long a request is worked on: the time for which it
	// waits for whatever passes. A client that is told to try again does so
	// within the time for which a repeat is known.
	Request time.Duration
	// Hold bounds how long a GET waits for a broken watch.
	Hold time.Duration
	// Profilings is how long the further reports of a job wait after one was written.
	Profilings time.Duration
	// Call bounds one call of the API server, so that one that goes nowhere is
	// made again within the request.
	Call time.Duration
	// Address is how long an address that no pod has is waited for: a container may
	// run before the cluster knows its pod's address.
	Address time.Duration
	// Successor bounds how long a write waits for the status of a coordinator
	// whose container has ended to tell of the container that asks.
	Successor time.Duration
	// BrokenWatch is how long a watch may be broken until the server is not
	// ready. It is shorter than the patience of deployed clients, so that they
	// reach another server, and longer than outages of the API server are,
	// which all servers share: were all of them not ready when it returns, the
	// Service would refuse connections.
	BrokenWatch time.Duration
}

// DefaultTimes returns the times that hold where none are given.
func DefaultTimes() Times {
	return Times{
		Read:        15 * time.Second,
		Body:        5 * time.Second,
		Request:     25 * time.Second,
		Hold:        5 * time.Second,
		Profilings:  10 * time.Second,
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
		Profilings:  cmp.Or(t.Profilings, defaults.Profilings),
		Call:        cmp.Or(t.Call, defaults.Call),
		Address:     cmp.Or(t.Address, defaults.Address),
		Successor:   cmp.Or(t.Successor, defaults.Successor),
		BrokenWatch: cmp.Or(t.BrokenWatch, defaults.BrokenWatch),
	}
	if t.Read < 0 || t.Body < 0 || t.Request < 0 || t.Hold < 0 || t.Profilings < 0 || t.Call < 0 || t.Address < 0 || t.Successor < 0 || t.BrokenWatch < 0 {
		return t, fmt.Errorf("server options: Times: %+v: must all be positive", t)
	}
	return t, nil
}
