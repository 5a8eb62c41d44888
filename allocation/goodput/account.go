// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math"
	"time"

	"opendilab.org/di-orchestrator/allocation"
)

// pace is what a placed job uses and does in each second.
type pace struct {
	// speed is relative to one replica's; goodput is in useful samples, 0 if it is unknown.
	speed, goodput float64
	// capacity is in units of the scarcest resource.
	capacity float64
}

// advance returns the usage up to now of a job that has been placed since usage.At. Time
// in a restart uses capacity, and does no work.
func advance(usage allocation.Usage, now time.Time, at pace) allocation.Usage {
	elapsed := now.Sub(usage.At).Seconds()
	if elapsed <= 0 {
		return usage
	}
	trained := math.Max(elapsed-usage.Restarting, 0)
	usage.Restarting = math.Max(usage.Restarting-elapsed, 0)
	usage.Work += at.speed * trained
	usage.Useful += at.goodput * trained
	usage.RunFor += trained
	usage.Attained += at.capacity * elapsed
	usage.At = now
	return usage
}

// restarted returns the usage of a job that is placed elsewhere now. The first start
// takes as long as a restart, and does not count as one.
func restarted(usage allocation.Usage, now time.Time, cost time.Duration) allocation.Usage {
	if !usage.At.IsZero() {
		usage.Restarts++
	}
	usage.At, usage.Restarting = now, cost.Seconds()
	return usage
}

// waited returns for how long a job has had no replicas.
func waited(job *allocation.Job, now time.Time) time.Duration {
	switch {
	case job.Waiting > 0:
		return job.Waiting
	case job.Usage.At.IsZero():
		return now.Sub(job.Created)
	}
	return now.Sub(job.Usage.At)
}
