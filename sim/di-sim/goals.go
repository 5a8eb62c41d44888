// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/di-sim/internal/goals"
)

// measureGoals prints the promised figures, and returns an error if one is missed.
func measureGoals(traces *experiment.Traces, o *options, stdout, progress io.Writer) error {
	count, missed, err := goals.Measure(traces, o.parts, o.quick, stdout, progress)
	if err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d figures are missed", missed, count)
	}
	return nil
}
