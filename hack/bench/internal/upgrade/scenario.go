// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade measures the effects of an upgrade on users: calls that fail or wait while
// operators restart, the webhooks' authority is rotated and stored jobs are migrated.
package upgrade

import (
	"flag"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// bench is the scenario with its flags.
type bench struct {
	*harness.Bench

	operatorFlags string
	rate          int
	jobs          int
	rounds        int
	rest          time.Duration
	objects       int
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "upgrade", Bench: b.Bench, Flags: b.flags, Prepare: b.Build,
		Sections: []harness.Section{
			{Name: "takeover", Run: b.runTakeover}, {Name: "restart", Run: b.runRestart}, {Name: "failover", Run: b.runFailover},
			{Name: "rotation", Run: b.runRotation}, {Name: "migration", Run: b.runMigration},
		},
	}
}

func (b *bench) flags(flags *flag.FlagSet) {
	flags.StringVar(&b.operatorFlags, "operator-flags", "", "further flags of the operators, separated by spaces")
	flags.IntVar(&b.rate, "rate", 50, "GETs of jobs a second, at the version that is not stored")
	flags.IntVar(&b.jobs, "jobs", 200, "takeover, restart, rotation: number of jobs")
	flags.IntVar(&b.rounds, "rounds", 3, "restart, failover, rotation: number of rounds")
	flags.DurationVar(&b.rest, "rest", 20*time.Second, "how long the calls are measured at rest")
	flags.IntVar(&b.objects, "objects", 10_000, "migration: jobs that are stored at v1alpha1")
}
