// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/history/record"
)

// Sums returns what jobs took together.
func Sums(of *record.SumList) api.HistorySums {
	sums := api.HistorySums{Since: of.Since, Truncated: of.Truncated, Items: make([]api.HistorySum, 0, len(of.Sums))}
	for i := range of.Sums {
		sum := &of.Sums[i]
		cpu, memory := sum.Shares()
		sums.Items = append(sums.Items, api.HistorySum{
			Key: sum.Key, Jobs: sum.Jobs, Unsuccessful: sum.Unsuccessful, WaitedHours: sum.Waited, GPUHours: sum.GPU, Daily: sum.Daily,
			CPUUsed: cpu, MemoryUsed: memory,
		})
	}
	return sums
}
