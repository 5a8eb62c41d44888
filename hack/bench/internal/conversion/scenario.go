// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conversion measures the cost of conversion: of whole reviews and of single
// writes.
package conversion

import (
	"context"
	"flag"
	"io"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

// roleEndpoint is the process that serves a conversion endpoint.
const roleEndpoint = "endpoint"

// New returns the scenario.
func New() *harness.Scenario {
	b := &harness.Bench{}
	section := func(name string, run func(context.Context, io.Writer) error) harness.Section {
		return harness.Section{Name: name, Run: func(ctx context.Context) (figures.Limits, error) { return nil, run(ctx, b.Out) }}
	}
	var endpoint string
	var heap int
	return &harness.Scenario{
		Name: "conversion", Bench: b,
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&endpoint, "endpoint", endpointOurs, "role endpoint: which one to serve")
			flags.IntVar(&heap, "heap", 0, "role endpoint: further bytes in the heap")
		},
		Sections: []harness.Section{section("reviews", reviews), section("writes", runWrites)},
		Roles: map[string]func(context.Context, io.Reader, io.Writer) error{
			roleEndpoint: func(_ context.Context, in io.Reader, out io.Writer) error { return serve(endpoint, heap, in, out) },
		},
	}
}
