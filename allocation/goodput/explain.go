// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"fmt"

	"opendilab.org/di-orchestrator/allocation"
)

// explain returns the answer about a job but for its usage.
func (p *Policy) explain(v *view, nodes []string) allocation.Placement {
	if len(nodes) == 0 {
		return allocation.Placement{Reason: allocation.ReasonInsufficientCapacity, Message: "waits for capacity"}
	}
	reason := allocation.ReasonPlaced
	elastic, _ := v.job.ElasticOf(len(nodes))
	if v.isElastic() && elastic < v.job.Wanted {
		reason = allocation.ReasonPartiallyPlaced
	}
	return allocation.Placement{
		Nodes: nodes, Reason: reason, Message: fmt.Sprintf("%d replicas on %d nodes", len(nodes), len(distinct(nodes))),
	}
}
