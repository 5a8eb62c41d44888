// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"k8s.io/apimachinery/pkg/util/duration"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/workload"
)

// allocation returns what the allocator decided about a preemptible job, and why.
func (p *page) allocation() table {
	status := &p.job.Status
	rows := table{{"Placement:", placement(status.Allocation)}}
	if allocated := conditions.Find(status, v2alpha1.ConditionAllocated); allocated != nil {
		rows.add("Reason:", strings.Trim(allocated.Reason+": "+allocated.Message, ": "))
	}
	rows.add("Group:", workload.Group(p.job))
	usage := status.AllocationUsage
	if usage == nil {
		return rows
	}
	rows.add("Policy:", usage.Policy)
	if usage.PlacedAt != nil {
		rows.add("Placed:", usage.PlacedAt.UTC().Format(time.RFC3339)+", "+duration.HumanDuration(max(0, p.now.Sub(usage.PlacedAt.Time)))+" ago")
	}
	rows.add("Restarts:", placementRestarts(usage))
	if usage.AccountedAt != nil {
		rows.add("Trained:", hours(usage.TrainedMilliseconds))
		rows.add("Capacity time:", hours(usage.AttainedMilliseconds)+" of one unit of the scarcest resource, such as a GPU")
	}
	return rows
}

// placement returns the nodes of an allocation, each with its number of replicas.
func placement(nodes []string) string {
	if len(nodes) == 0 {
		return none
	}
	counts := map[string]int{}
	var distinct []string
	for _, node := range nodes {
		if counts[node]++; counts[node] == 1 {
			distinct = append(distinct, node)
		}
	}
	slices.Sort(distinct)
	for i, node := range distinct {
		distinct[i] = fmt.Sprintf("%s (%d)", node, counts[node])
	}
	return fmt.Sprintf("%s on %s: %s", english.Plural(len(nodes), "replica", ""), english.Plural(len(distinct), "node", ""), strings.Join(distinct, ", "))
}

// placementRestarts returns the restarts by changes of the placement, and what they cost.
func placementRestarts(usage *v2alpha1.AllocationUsage) string {
	text := fmt.Sprintf("%d by changes of the placement", usage.Restarts)
	if usage.RestartMilliseconds > 0 {
		text += ", " + (time.Duration(usage.RestartMilliseconds) * time.Millisecond).Round(100*time.Millisecond).String() + " each on average"
	}
	if usage.Restarting {
		text += ", restarting now"
	}
	return text
}

// hours returns a duration in hours.
func hours(milliseconds int64) string {
	return fmt.Sprintf("%.2f h", float64(milliseconds)/float64(time.Hour/time.Millisecond))
}
