// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"opendilab.org/di-orchestrator/internal/membership"
)

// Limits bound what one job may ask for, so that no job takes the cluster or
// di-server from the others.
type Limits struct {
	// ReplicasPerRequest is the maximum number of replicas of one task in a request.
	ReplicasPerRequest int32
	// ReplicasPerJob is how many replicas a job may have; a coordinator-led one
	// never more than by default.
	ReplicasPerJob int32
	// WritesPerSecond and WriteBurst are how fast writes for one job are done.
	// What comes faster waits.
	WritesPerSecond float64
	WriteBurst      int
	// WriteBytesPerMinute is how much a server writes for one job: the sizes of the
	// objects that it writes. What comes faster waits.
	WriteBytesPerMinute int
	// Connections and ConnectionsPerAddress are how many connections each port has at
	// a time, in all and of one address. By default an address has more where callers
	// that are not known are let in, as many may come through one gateway.
	Connections, ConnectionsPerAddress int
	// ProfilingBytes is the maximum size of a profiling report, in bytes.
	ProfilingBytes int
}

// DefaultLimits returns the limits that hold where none are given.
func DefaultLimits() Limits {
	return Limits{
		ReplicasPerRequest: 500, ReplicasPerJob: membership.MaxMembers, WritesPerSecond: 10, WriteBurst: 50,
		WriteBytesPerMinute: 512 << 10, ProfilingBytes: 64 << 10,
		Connections: 4096, ConnectionsPerAddress: 64,
	}
}

// maxLimiters bounds for how many jobs, or addresses, a rate is remembered.
const maxLimiters = 8192

func (l Limits) withDefaults(mode Mode) (Limits, error) {
	defaults := DefaultLimits()
	if mode != ModeEnforce {
		defaults.ConnectionsPerAddress = defaults.Connections / 2
	}
	l = Limits{
		ReplicasPerRequest:  cmp.Or(l.ReplicasPerRequest, defaults.ReplicasPerRequest),
		ReplicasPerJob:      cmp.Or(l.ReplicasPerJob, defaults.ReplicasPerJob),
		WritesPerSecond:     cmp.Or(l.WritesPerSecond, defaults.WritesPerSecond),
		WriteBurst:          cmp.Or(l.WriteBurst, defaults.WriteBurst),
		WriteBytesPerMinute: cmp.Or(l.WriteBytesPerMinute, defaults.WriteBytesPerMinute),
		ProfilingBytes:      cmp.Or(l.ProfilingBytes, defaults.ProfilingBytes),

		Connections:           cmp.Or(l.Connections, defaults.Connections),
		ConnectionsPerAddress: cmp.Or(l.ConnectionsPerAddress, defaults.ConnectionsPerAddress),
	}
	if l.ReplicasPerRequest < 0 || l.ReplicasPerJob < 0 || l.WritesPerSecond < 0 || l.WriteBurst < 0 ||
		l.WriteBytesPerMinute < 0 || l.ProfilingBytes < 0 || l.Connections < 0 || l.ConnectionsPerAddress < 0 {
		return l, fmt.Errorf("server options: Limits: %+v: must all be positive", l)
	}
	return l, nil
}

// checkAsked tells why a request may not ask for so many replicas; the name is
// the field's that says how many.
func (l Limits) checkAsked(name string, replicas int32) error {
	if replicas > l.ReplicasPerRequest {
		return failure(KindInvalid, "%s: %d is more than the %d that one request may ask for", name, replicas, l.ReplicasPerRequest)
	}
	return nil
}

// checkDemand tells why a request may not ask for what it does.
func (l Limits) checkDemand(asked *replicasBody) error {
	return errors.Join(
		l.checkAsked("collectors.replicas", asked.Collectors.Replicas),
		l.checkAsked("learners.replicas", asked.Learners.Replicas),
	)
}

// checkTotal tells why a job may not have so many replicas.
func (l Limits) checkTotal(name string, total int64) error {
	if total > int64(l.ReplicasPerJob) {
		return failure(KindInvalid, "%s: the job would have %d replicas, more than the %d that one may have", name, total, l.ReplicasPerJob)
	}
	return nil
}

// pace holds what is done for each of many, jobs or addresses, to a rate.
type pace struct {
	// what is done, for the log: such as writes for one job.
	what      string
	perSecond float64
	burst     int

	mutex sync.Mutex
	each  *lru.Cache
}

func newPace(what string, perSecond float64, burst int) *pace {
	return &pace{what: what, perSecond: perSecond, burst: burst, each: lru.New(maxLimiters)}
}

// wait returns when something more may be done for one of them. It keeps a caller
// waiting until the request's time is over, and only then sends it away.
func (p *pace) wait(ctx context.Context, one string) error {
	err := p.limiter(one).Wait(ctx)
	if err == nil {
		return nil
	}
	// The limiter does not wait for what comes too late, but who is sent away
	// at once is soon back.
	<-ctx.Done()
	return unavailable(fmt.Errorf("more than %v %s a second: %w", p.perSecond, p.what, err))
}

func (p *pace) limiter(one string) *rate.Limiter {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if known, found := p.each.Get(one); found {
		if limiter, isLimiter := known.(*rate.Limiter); isLimiter {
			return limiter
		}
	}
	limiter := rate.NewLimiter(rate.Limit(p.perSecond), p.burst)
	p.each.Add(one, limiter)
	return limiter
}
