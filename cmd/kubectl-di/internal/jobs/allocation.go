// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/job/workload"
)

// allocation returns what the allocator decided about a preemptible job, and why.
func (p *page) allocation() cli.Table {
	rows := cli.Table{{"Placement:", placement(p.view.Placement)}}
	rows.Add("Reason:", p.decided(jobview.Allocator))
	rows.Add("Group:", workload.Group(p.Job))
	usage := p.Job.Status.AllocationUsage
	if usage == nil {
		return rows
	}
	rows.Add("Policy:", usage.Policy)
	if usage.PlacedAt != nil {
		rows.Add("Placed:", p.moment(&usage.PlacedAt.Time))
	}
	rows.Add("Restarts:", placementRestarts(usage))
	if usage.AccountedAt != nil {
		rows.Add("Trained:", hours(usage.TrainedMilliseconds))
		rows.Add("Capacity time:", hours(usage.AttainedMilliseconds)+" of one unit of the scarcest resource, such as a GPU")
	}
	return rows
}

// decided returns what was decided last by one of those who decide; "" if nothing was.
func (p *page) decided(who string) string {
	for i := range p.view.Decisions {
		if p.view.Decisions[i].Who == who {
			return p.view.Decisions[i].Text()
		}
	}
	return ""
}

// placement returns the nodes of an allocation, each with its number of replicas.
func placement(nodes []jobview.OnNode) string {
	if len(nodes) == 0 {
		return none
	}
	total := 0
	var texts []string
	for _, one := range nodes {
		total += one.Count
		texts = append(texts, fmt.Sprintf("%s (%d)", one.Node, one.Count))
	}
	return fmt.Sprintf("%s on %s: %s", english.Plural(total, "replica", ""), english.Plural(len(nodes), "node", ""), strings.Join(texts, ", "))
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
