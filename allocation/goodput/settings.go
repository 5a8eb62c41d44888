// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "time"

// Settings are the constants of the policy. None is fitted to a workload.
type Settings struct {
	// Drain is over how long a backlog drains, for jobs whose remaining work is unknown. The
	// price of capacity falls meanwhile, so jobs that stay long weigh less.
	Drain time.Duration
	// DrainReported is Drain for jobs that report their progress: what is known may count more.
	DrainReported time.Duration
	// DrainGuessed is Drain for jobs whose remaining work is the mean of their group.
	DrainGuessed time.Duration
	// Large is the capacity-time after which jobs are served first come first served: the
	// time for which one unit of the scarcest resource was held (the threshold of Tiresias).
	Large time.Duration
	// Share is the exponent of the weights among large jobs, from 0 (equal weights) to less than 1.
	Share float64
	// Settled and Horizon are over how long a change must pay for its restart: Settled plus
	// half of the time that the job has run, at most Horizon.
	Settled, Horizon time.Duration
	// RestartCost is how long a restart takes, for jobs whose restarts are not measured yet.
	RestartCost time.Duration
	// Fairness is from 0 to 1: how much the weight of a job grows with its age by its work.
	Fairness float64
	// StarveAfter and StarveShare bound how long a job waits in all: beyond StarveAfter, and this share
	// of its expected work, it gets its minimum before any job gets more than its minimum.
	StarveAfter time.Duration
	StarveShare float64
	// SilentAfter is how long a job must have been placed without a report of its speed before
	// it may get twice the replicas.
	SilentAfter time.Duration
	// DeviceKey is the label of nodes that names the type of their devices. Nodes of several types have a price
	// each, and a job has a model of each. Without a key all nodes are of one type.
	DeviceKey string
}

// DefaultSettings returns the settings that the documentation explains.
func DefaultSettings() Settings {
	return Settings{
		Drain: 10000 * time.Second, DrainReported: 3000 * time.Second, DrainGuessed: 20000 * time.Second,
		Large: 16 * time.Hour, Share: 0.4,
		Settled: 2 * time.Minute, Horizon: 10 * time.Minute, RestartCost: 30 * time.Second,
		Fairness: 0.02, StarveAfter: 10 * time.Minute, StarveShare: 0.5,
		SilentAfter: 10 * time.Minute, DeviceKey: "nvidia.com/gpu.product",
	}
}
