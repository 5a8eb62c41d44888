// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baselines has the policies that others have published, as the Pollux
// artifact implements them, and Sia's objective solved exactly. They are references
// for the simulator and not policies for a cluster.
package baselines

import "slices"

// free counts the GPUs of each node that no job has.
func free(nodes, gpus int, placed map[string][]int) []int {
	left := make([]int, nodes)
	for i := range left {
		left[i] = gpus
	}
	for _, where := range placed {
		for _, node := range where {
			left[node]--
		}
	}
	return left
}

// spread takes GPUs from the nodes that have most of them free, the first of equals.
func spread(left []int, count int) []int {
	var where []int
	for len(where) < count {
		node := slices.Index(left, slices.Max(left))
		taken := min(left[node], count-len(where))
		for range taken {
			where = append(where, node)
		}
		left[node] -= taken
	}
	return where
}
