// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"

	"opendilab.org/di-orchestrator/internal/limits"
)

// UsualGPUs returns the usual number of GPUs of a node: the most frequent allocatable count, or the
// larger of equally frequent ones. If that is 0, it returns the maximum.
func UsualGPUs(allocatable []int32) int32 {
	if len(allocatable) == 0 {
		return 0
	}
	frequency := make(map[int32]int, len(allocatable))
	for _, count := range allocatable {
		frequency[count]++
	}
	var usual int32
	for count, times := range frequency {
		if times > frequency[usual] || times == frequency[usual] && count > usual {
			usual = count
		}
	}
	if usual == 0 {
		return slices.Max(allocatable)
	}
	return usual
}

// SplitGPUs returns the GPUs of each DDP learner pod of a learner, given the usual number of GPUs
// of a node. Learners that fit a node have one pod. Others have pods of a node's size and one for
// the remainder. A learner of at most one GPU has no DDP learners.
func SplitGPUs(gpus, perNode int32) []int32 {
	if gpus <= 1 {
		return nil
	}
	if perNode <= 0 || gpus <= perNode {
		return []int32{gpus}
	}
	var split []int32
	gpus = min(gpus, limits.GPUs)
	for left := gpus; left > 0; left -= perNode {
		split = append(split, min(left, perNode))
	}
	return split
}
