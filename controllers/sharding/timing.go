// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import "time"

// The times of all Leases, the leader's and those of shards. After its last renewal a holder that is alone waits RetryPeriod, retries
// for RenewDeadline, and ends. It ends after stopAfter in any case, also if client-go still tries to release the Lease. Each step
// is a second before the next one, and the last one is before another operator may take the Lease.
const (
	// LeaseDuration is how long after the last renewal another operator waits before it takes a Lease.
	LeaseDuration = 13 * time.Second
	// RenewDeadline is how long a renewal is retried: an API server that pauses for 10 seconds ends no operator.
	RenewDeadline = 10 * time.Second
	RetryPeriod   = time.Second
	// stopAfter is how long after the start of the last renewal the process may act.
	stopAfter = 12 * time.Second
	// requestTimeout limits a request about a Lease. One that hangs must not lose it.
	requestTimeout = RenewDeadline / 2
	// interval is the interval at which all Leases are read, and askInterval that of requests for a shard.
	interval    = time.Second
	askInterval = 5 * time.Second
)
