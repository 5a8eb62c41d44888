// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"time"

	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

// load contains the continuous calls.
type load []*pace.Prober

func (l load) start(ctx context.Context) {
	for _, prober := range l {
		prober.Start(ctx)
	}
}

func (l load) stop() {
	for _, prober := range l {
		prober.Stop()
	}
}

// take returns the results since its last call, by prober.
func (l load) take() []pace.Tally {
	taken := make([]pace.Tally, len(l))
	for i, prober := range l {
		taken[i] = prober.Take()
	}
	return taken
}

// phase is a part of a section.
type phase struct {
	name string
	// strict phases must not have a failed call.
	strict bool
	took   time.Duration
	calls  []pace.Tally
}

// during measures the load while do runs.
func (l load) during(name string, strict bool, do func() error) (phase, error) {
	l.take()
	began := time.Now()
	err := do()
	return phase{name: name, strict: strict, took: time.Since(began), calls: l.take()}, err
}

// print prints the phases and returns the limits that they miss.
func (l load) print(b *bench, phases []phase) (figures.Limits, error) {
	var missed figures.Limits
	table := b.Table(0)
	fmt.Fprintln(table, "phase\ttook\tcalled\tcalls\tfailed\tp50\tp99\tslowest")
	var failures []string
	for _, phase := range phases {
		for i, prober := range l {
			tally := &phase.calls[i]
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", phase.name, figures.Seconds(phase.took), prober.Name, tally.Calls(), tally.Failed,
				figures.Shown(tally.Times, 50), figures.Shown(tally.Times, 99), figures.Millis(tally.Slowest))
			for _, failure := range tally.Failures {
				failures = append(failures, fmt.Sprintf("%s: %s: %s", phase.name, prober.Name, failure))
			}
			if phase.strict {
				missed.Require(tally.Calls() > 0, "%s: %s: no call was made", phase.name, prober.Name)
				missed.Require(tally.Failed == 0, "%s: %s: %d of %d calls failed", phase.name, prober.Name, tally.Failed, tally.Calls())
			}
		}
	}
	if err := table.Flush(); err != nil {
		return nil, fmt.Errorf("printing: %w", err)
	}
	if len(failures) > 0 {
		fmt.Fprintln(b.Out, "\nSome of the failures:")
	}
	for _, failure := range failures {
		fmt.Fprintf(b.Out, "  %s\n", failure)
	}
	return missed, nil
}
