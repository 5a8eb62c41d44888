// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"errors"
	"fmt"

	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/wire"
)

// Limits bound the requests of one job, so that no job exhausts the cluster or di-server. The zero value
// selects the defaults.
type Limits struct {
	// ReplicasPerRequest bounds the replicas of one task in a request.
	ReplicasPerRequest int32
	// ReplicasPerJob bounds the replicas of a job. Coordinator-led jobs never have more than the default.
	ReplicasPerJob int32
	// WritesPerSecond and WriteBurst limit the writes for one job. Further writes wait.
	WritesPerSecond float64
	WriteBurst      int
	// WriteBytesPerMinute limits the total size of the objects written for one job. Further writes wait.
	WriteBytesPerMinute int
	// Connections and ConnectionsPerAddress bound the concurrent connections of each port, in total and
	// per address. The default per address is higher where unauthenticated callers are admitted, because
	// many callers may share one gateway.
	Connections, ConnectionsPerAddress int
	// ProfilingBytes bounds the size of a job's profiling report.
	ProfilingBytes int
}

// DefaultLimits returns the default limits.
func DefaultLimits() Limits {
	return Limits{
		ReplicasPerRequest: 500, ReplicasPerJob: membership.MaxMembers, WritesPerSecond: 10, WriteBurst: 50,
		WriteBytesPerMinute: 512 << 10, ProfilingBytes: 64 << 10,
		Connections: 4096, ConnectionsPerAddress: 64,
	}
}

func (l Limits) withDefaults(mode auth.Mode) (Limits, error) {
	defaults := DefaultLimits()
	if mode != auth.ModeEnforce {
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

// checkRequest refuses requests for too many replicas, in the named field.
func (l Limits) checkRequest(name string, replicas int32) error {
	if replicas > l.ReplicasPerRequest {
		return failure.New(failure.Invalid, "%s: %d is more than the %d that one request may ask for", name, replicas, l.ReplicasPerRequest)
	}
	return nil
}

// checkResize refuses requests for too many collectors or learners.
func (l Limits) checkResize(asked *wire.Resize) error {
	return errors.Join(
		l.checkRequest("collectors.replicas", asked.Collectors.Replicas),
		l.checkRequest("learners.replicas", asked.Learners.Replicas),
	)
}

// checkTotal refuses a total that exceeds ReplicasPerJob.
func (l Limits) checkTotal(total int64) error {
	if err := membership.CheckTotal(total, int64(l.ReplicasPerJob)); err != nil {
		return failure.New(failure.Invalid, "%v", err)
	}
	return nil
}
