// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAJobIsSlowerAcrossRacksOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		racks    Racks
		nodes    []int
		slowdown float64
		span     int
	}{
		"one rack for all": {Racks{}, []int{0, 9}, 1, 0},
		"within a rack":    {Racks{Rack: 2, Slowdown: 3}, []int{2, 2, 3}, 1, 1},
		"across racks":     {Racks{Rack: 2, Slowdown: 3}, []int{1, 2}, 3, 2},
		"hidden racks":     {Racks{Rack: 2, Slowdown: 3, Hidden: true}, []int{1, 2}, 3, 0},
		"nowhere":          {Racks{Rack: 2, Slowdown: 3}, nil, 1, 1},
	} {
		expect.Equal(t, name, tc.slowdown, tc.racks.slowdown(tc.nodes))
		expect.Equal(t, name, tc.span, tc.racks.span(tc.nodes))
	}
}
