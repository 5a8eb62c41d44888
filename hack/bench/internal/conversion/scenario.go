// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conversion counts and times the conversions of single writes.
package conversion

import (
	"context"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

// New returns the scenario.
func New() *harness.Scenario {
	b := &harness.Bench{}
	return &harness.Scenario{Name: "conversion", Bench: b, Sections: []harness.Section{
		{Name: "writes", Run: func(ctx context.Context) (figures.Limits, error) { return nil, runWrites(ctx, b.Out) }},
	}}
}
