// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server measures di-server under the polls of many coordinators.
package server

import (
	"context"
	"flag"
	"io"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// roleBare is the process that serves the reference, an empty handler.
const roleBare = "bare"

// bench is the scenario with its flags.
type bench struct {
	*harness.Bench

	jobs     int
	duration time.Duration
	writes   float64
	size     int
}

// New returns the scenario.
func New() *harness.Scenario {
	b := &bench{Bench: &harness.Bench{}}
	return &harness.Scenario{
		Name: "server", Bench: b.Bench, Flags: b.flags, Prepare: b.Build,
		Sections: []harness.Section{{Name: "polling", Run: b.runPolling}},
		Roles: map[string]func(context.Context, io.Reader, io.Writer) error{
			roleBare: func(ctx context.Context, in io.Reader, out io.Writer) error { return serveBare(ctx, b.size, in, out) },
		},
	}
}

func (b *bench) flags(flags *flag.FlagSet) {
	flags.IntVar(&b.jobs, "jobs", 1000, "jobs, each with one polling coordinator")
	flags.DurationVar(&b.duration, "duration", 30*time.Second, "length of each row")
	flags.Float64Var(&b.writes, "writes", 50, "writes a second")
	flags.IntVar(&b.size, "size", 0, "role bare: bytes of the answer")
}
