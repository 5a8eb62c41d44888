// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

const gi = 1 << 30

// Settings are the numbers of the rules, in the units of package optimizer: millicores, bytes, and shares of 1.
// docs/optimizer.md lists them with their sources.
type Settings struct {
	// Samples is how many samples a rule takes the mean of.
	Samples int
	// PlanInterval is the minimum time between two plans of a job.
	PlanInterval time.Duration
	// UrgentInterval is the same for an urgent plan: a hot parameter server, memory that is almost full, or a
	// shrink that made the job slower.
	UrgentInterval time.Duration
	// ServerInterval is the minimum time between two plans that change parameter servers and are not urgent.
	ServerInterval time.Duration

	// InitialShare is the part of the job's limit that a replica without requests gets: 1/InitialShare.
	InitialShare int64
	// Initial are the maximum requests of such a replica.
	Initial optimizer.Resources

	// Overload is the utilization of the busiest parameter server that the number of workers aims at.
	Overload float64
	// Exhausted is its utilization above which no workers are added.
	Exhausted float64
	// SpeedRatio is the minimum speed of an added worker, as a share of the speed per worker before.
	SpeedRatio float64
	// WorkerStep is the maximum number of workers that a plan adds.
	WorkerStep int32
	// MaxWorkers and MaxServers are the maximum numbers of workers and parameter servers.
	MaxWorkers, MaxServers int32

	// Hot is the utilization at which a parameter server is hot.
	Hot float64
	// HotSamples is how many samples show it.
	HotSamples int
	// HotMin and HotMax bound by what a plan multiplies the CPU of a hot parameter server.
	HotMin, HotMax float64

	// CPUMargin is what a replica requests beyond the CPU that it used at its peak, as a share of that.
	CPUMargin float64
	// WorkerMemoryMargin and ServerMemoryMargin are the same for memory.
	WorkerMemoryMargin, ServerMemoryMargin float64
	// MemoryFull is the share of requested memory at which a replica gets more.
	MemoryFull float64

	// ShrinkFactor is how many times its need a request must be, before it shrinks to the need.
	ShrinkFactor float64
	// ShrinkWindow is how long a job must have been observed in its present shape before it shrinks.
	ShrinkWindow time.Duration
	// ShrinkHold is how long a task whose requests grew does not shrink.
	ShrinkHold time.Duration
	// SpeedLoss is the share of speed whose loss after a shrink takes the shrink back.
	SpeedLoss float64

	// OOMFactor multiplies the memory of a replica that was killed out of memory, and OOMStep is the maximum that
	// this adds.
	OOMFactor float64
	OOMStep   int64

	// Min and Max bound the requests of a replica.
	Min, Max optimizer.Resources
}

// Defaults returns the default settings.
func Defaults() Settings {
	return Settings{
		Samples: 5, PlanInterval: 5 * time.Minute, UrgentInterval: time.Minute, ServerInterval: time.Hour,
		InitialShare: 5, Initial: optimizer.Resources{CPU: 16_000, Memory: 8 * gi},
		Overload: 0.9, Exhausted: 0.95, SpeedRatio: 0.2, WorkerStep: 8, MaxWorkers: 60, MaxServers: 15,
		Hot: 0.9, HotSamples: 2, HotMin: 1.25, HotMax: 2.5,
		CPUMargin: 0.2, WorkerMemoryMargin: 0.5, ServerMemoryMargin: 0.2, MemoryFull: 0.9,
		ShrinkFactor: 1.25, ShrinkWindow: 10 * time.Minute, ShrinkHold: 24 * time.Hour, SpeedLoss: 0.05,
		OOMFactor: 2, OOMStep: 8 * gi,
		Min: optimizer.Resources{CPU: 100, Memory: gi / 4}, Max: optimizer.Resources{CPU: 32_000, Memory: 64 * gi},
	}
}

// Limits returns the limits of a job by these settings, its own limit, the installation's limit of a job, and
// the allocatable of the largest node. Zeros are no limits.
func (s *Settings) Limits(own, installation, node optimizer.Resources) optimizer.Limits {
	return optimizer.Limits{Job: own.Least(installation), Replica: s.Max, Floor: s.Min, Node: node}
}

// Check returns an error that names the first setting outside its range.
func (s *Settings) Check() error {
	for _, one := range []struct {
		name            string
		value, min, max float64
	}{
		{"samples", float64(s.Samples), 1, optimizer.MaxSamples},
		{"hotSamples", float64(s.HotSamples), 1, optimizer.MaxSamples},
		{"planInterval", s.PlanInterval.Seconds(), 1, 1e6},
		{"urgentInterval", s.UrgentInterval.Seconds(), 1, 1e6},
		{"serverInterval", s.ServerInterval.Seconds(), 1, 1e6},
		{"shrinkWindow", s.ShrinkWindow.Seconds(), 1, 1e6},
		{"shrinkHold", s.ShrinkHold.Seconds(), 1, 1e7},
		{"initialShare", float64(s.InitialShare), 1, 1000},
		{"overload", s.Overload, 0.1, 1}, {"exhausted", s.Exhausted, 0.1, 1}, {"hot", s.Hot, 0.1, 1}, {"memoryFull", s.MemoryFull, 0.1, 1},
		{"speedRatio", s.SpeedRatio, 0, 1}, {"speedLoss", s.SpeedLoss, 0.01, 1},
		{"workerStep", float64(s.WorkerStep), 1, 1000}, {"maxWorkers", float64(s.MaxWorkers), 1, 1e5}, {"maxServers", float64(s.MaxServers), 1, 1e5},
		{"hotMin", s.HotMin, 1.01, 10}, {"hotMax", s.HotMax, s.HotMin, 10},
		{"cpuMargin", s.CPUMargin, 0.01, 10}, {"workerMemoryMargin", s.WorkerMemoryMargin, 0.01, 10}, {"serverMemoryMargin", s.ServerMemoryMargin, 0.01, 10},
		{"shrinkFactor", s.ShrinkFactor, 1.01, 10}, {"oomFactor", s.OOMFactor, 1.1, 4}, {"oomStep", float64(s.OOMStep), 1 << 20, 1 << 44},
		{"initial.cpu", float64(s.Initial.CPU), 1, 1e9}, {"initial.memory", float64(s.Initial.Memory), 1 << 20, 1 << 44},
		{"min.cpu", float64(s.Min.CPU), 1, 1e9}, {"min.memory", float64(s.Min.Memory), 1 << 20, 1 << 44},
		{"max.cpu", float64(s.Max.CPU), float64(s.Min.CPU), 1e9}, {"max.memory", float64(s.Max.Memory), float64(s.Min.Memory), 1 << 44},
	} {
		if !(one.value >= one.min && one.value <= one.max) { // NaN is outside every range
			return fmt.Errorf("optimizer.%s is %v: must be between %v and %v", one.name, one.value, one.min, one.max)
		}
	}
	return nil
}
