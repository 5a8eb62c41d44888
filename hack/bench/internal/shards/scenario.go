// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shards measures how much load two operators carry that divide the jobs, beside one, and what happens to
// the jobs of an operator that is killed or stopped.
package shards

import (
	"context"
	"errors"
	"flag"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

const (
	// minRatio is how many times the load of one shard two must carry.
	minRatio = 1.7
	// maxTakeover is the maximum time until the pods exist of a job that is submitted after the end of an operator.
	maxTakeover = 20 * time.Second
)

// bench is the scenario with its flags.
type bench struct {
	*harness.Bench

	jobs, pods, rounds int
	quota              float64
	kills              int
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "shards", Bench: b.Bench, Flags: b.flags, Prepare: b.prepare,
		Sections: []harness.Section{{Name: "load", Run: b.runLoad}, {Name: "kill", Run: b.runKill}},
	}
}

func (b *bench) flags(flags *flag.FlagSet) {
	flags.IntVar(&b.jobs, "jobs", 300, "load: jobs of a round")
	flags.IntVar(&b.pods, "pods", 5, "pods of each job")
	flags.IntVar(&b.rounds, "rounds", 5, "load: rounds of each number of shards; the table has medians")
	flags.Float64Var(&b.quota, "quota", 0.05, "load: processors that each operator may use")
	flags.IntVar(&b.kills, "kills", 3, "kill: how often an operator is killed, and how often stopped, the leader and the other one each")
}

// prepare validates the flags and builds the program.
func (b *bench) prepare(ctx context.Context) error {
	if b.jobs < 1 || b.pods < 1 || b.rounds < 1 || b.kills < 1 {
		return errors.New("-jobs, -pods, -rounds and -kills have to be more than 0")
	}
	if b.quota <= 0 || b.quota > 1 {
		return errors.New("-quota has to be more than 0, and at most 1")
	}
	return b.Build(ctx)
}
