// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// The indexes of a task's replicas start at 0 and have no gaps, unless pods were launched or removed by
// name. Then the job's status records them.

// Indexes returns the indexes of so many replicas of a task, in order, given the recorded ones. A smaller
// count drops the highest indexes. A larger one adds the lowest free indexes.
func Indexes(recorded string, count int32) []int32 {
	kept := readIndexes(recorded)
	kept = kept[:min(len(kept), int(count))]
	indexes := make([]int32, 0, count)
	for next := int32(0); len(indexes)+len(kept) < int(count); next++ {
		if len(kept) > 0 && kept[0] == next {
			kept = kept[1:]
		}
		indexes = append(indexes, next)
	}
	return append(indexes, kept...)
}

// IsDense reports whether indexes start at 0 and have no gaps.
func IsDense(indexes []int32) bool {
	return len(indexes) == 0 || int(indexes[len(indexes)-1]) == len(indexes)-1
}

// readIndexes parses recorded indexes. It returns none if there are none, or they are not in order, as
// another writer may have left them.
func readIndexes(recorded string) []int32 {
	indexes := ReadRun(recorded)
	for i := 1; i < len(indexes); i++ {
		if indexes[i] <= indexes[i-1] {
			return nil
		}
	}
	return slices.Clip(indexes)
}

func recordedIndexes(record *v2alpha1.ScalingStatus, task string) string {
	if record == nil {
		return ""
	}
	return record.Indexes[task]
}
