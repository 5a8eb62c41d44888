// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"math"
	"testing"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
)

func TestReportsAreBoundedAndKeepEveryPlacement(t *testing.T) {
	t.Parallel()
	all := []model.Observation{{Nodes: 1, Replicas: 1, Atomic: 8}, {Nodes: 1, Replicas: 2, Atomic: 8}}
	for atomic := range 200 {
		all = append(all, model.Observation{Nodes: 4, Replicas: 16, Atomic: atomic + 1})
	}
	kept := bounded(all, allocation.MaxObservations)
	if len(kept) != allocation.MaxObservations || kept[0] != all[0] || kept[1] != all[1] || kept[len(kept)-1] != all[len(all)-1] {
		t.Errorf("%d observations are kept, from %v to %v", len(kept), kept[:2], kept[len(kept)-1])
	}
}

func TestTimesAreThoseOfTheLeastRotationElseOfTheGrid(t *testing.T) {
	t.Parallel()
	a := &Application{
		placements: map[string]curve{"13": {{8, 1, 0.5}, {16, 3, 1.5}}}, grid: map[[2]int]curve{{2, 5}: {{8, 7, 2}}}, widest: 2,
		times: map[timeKey][2]float64{},
	}
	for _, test := range []struct {
		placement  []int
		atomic     int
		step, sync float64
	}{
		{[]int{3, 1}, 8, 1, 0.5},
		{[]int{1, 3}, 12, 2, 1},
		{[]int{1, 3}, 20, 4, 2},
		{[]int{4, 1}, 8, 7, 2},
		{[]int{1, 1, 3}, 8, 7, 2},
	} {
		if step, sync := a.Times(test.placement, test.atomic); step != test.step || sync != test.sync {
			t.Errorf("placement %v with %d samples: %g s and %g s, want %g s and %g s", test.placement, test.atomic, step, sync, test.step, test.sync)
		}
	}
	if step, _ := a.Times([]int{2, 2, 2}, 8); !math.IsNaN(step) {
		t.Errorf("a shape that was not measured takes %g s, want no number", step)
	}
}
