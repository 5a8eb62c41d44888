// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "slices"

// nearest returns so many of the free nodes, or all if there are fewer: those of the fewest domains that hold the job, and of
// these the job's own ones first.
func (p *placer) nearest(v *view, free []int, need int) []int {
	need = min(need, len(free))
	own := make([]bool, len(p.nodes))
	for _, node := range free {
		own[node] = p.wasOn(v, node)
	}
	if p.tree != nil && need > 1 {
		room := make([]int32, len(p.nodes))
		for _, node := range free {
			room[node] = 1
		}
		// The rooms are exact, so the first list holds the job.
		for _, set := range p.tree.Sets(room, int64(need), own) {
			free = set
			break
		}
	}
	nodes := slices.Clone(free)
	slices.SortStableFunc(nodes, func(a, b int) int {
		switch {
		case own[a] == own[b]:
			return 0
		case own[a]:
			return -1
		}
		return 1
	})
	return nodes[:need]
}
