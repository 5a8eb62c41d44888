// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/plans"
	"opendilab.org/di-orchestrator/job/workload"
)

// mostShown is how many plans or resource overrides the page shows.
const mostShown = 10

// autoscaling returns what the autoscaler last decided, and why.
func (p *page) autoscaling() cli.Table {
	var rows cli.Table
	status := p.Job.Status.Autoscaling
	if status == nil {
		return cli.Table{{"nothing decided yet"}}
	}
	if ratio := status.Ratio; ratio != nil {
		rows.Add("Ratio rule:", p.decided(jobview.Ratio))
		if ratio.DecidedAt != nil {
			rows.Add("Decided:", p.moment(&ratio.DecidedAt.Time))
		}
		rows.Add("Producers:", producers(ratio))
		rows.Add("Capacity:", fmt.Sprintf("%s samples/s of one producer, %s of the consumer", rate(ratio.ProducerCapacity), rate(ratio.ConsumerCapacity)))
		rows.Add("Queue:", fmt.Sprintf("%s, target %d", english.Plural(int(ratio.Queue), "sample", ""), ratio.TargetQueue))
		rows.Add("Waiting:", fmt.Sprintf("consumer %s of the time, producers %s", share(ratio.Starved), share(ratio.Blocked)))
		if ratio.GrownAt != nil {
			rows.Add("Grown:", p.age(&ratio.GrownAt.Time)+" ago")
		}
		if ratio.ShrunkAt != nil {
			rows.Add("Shrunk:", p.age(&ratio.ShrunkAt.Time)+" ago")
		}
	}
	if optimizer := status.Optimizer; optimizer != nil {
		rows.Add("Optimizer:", p.decided(jobview.Optimizer))
		rows.Add("Its plan:", optimizer.Plan)
	}
	return rows
}

// producers returns the desired number of producers, and what was requested of each task.
func producers(ratio *v2alpha1.RatioStatus) string {
	parts := []string{fmt.Sprintf("%d desired", ratio.Desired)}
	for _, task := range slices.Sorted(maps.Keys(ratio.Replicas)) {
		parts = append(parts, fmt.Sprintf("%d of task %s requested", ratio.Replicas[task], task))
	}
	return strings.Join(parts, ", ")
}

// rate returns a rate in thousandths as a decimal number.
func rate(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/1000, 'f', -1, 64)
}

// share returns a share in thousandths as a percentage.
func share(thousandths int32) string {
	return strconv.FormatFloat(float64(thousandths)/10, 'f', -1, 64) + " %"
}

func (p *page) hasOverrides() bool {
	return p.Job.Status.Scaling != nil && len(p.Job.Status.Scaling.Resources) > 0
}

// overrides returns the resources that differ from the templates, and why.
func (p *page) overrides() cli.Table {
	if !p.hasOverrides() {
		return nil
	}
	rows := cli.Table{{"TASK", "REPLICA", "RESOURCES", "WHY", "CHANGES"}}
	all := p.Job.Status.Scaling.Resources
	for i := range all[:min(len(all), mostShown)] {
		override := &all[i]
		replica := "all"
		if override.Index != nil {
			replica = strconv.Itoa(int(*override.Index))
		}
		if override.Slot != "" {
			replica = override.Slot
		}
		rows = append(rows, []string{
			override.Task, replica, cmp.Or(workload.FormatResources(override.Resources), none), cmp.Or(override.Reason, none), strconv.Itoa(int(override.Attempts)),
		})
	}
	if more := len(all) - mostShown; more > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d more", more)})
	}
	return rows
}

func (p *page) hasPlans() bool {
	hasRecord := p.Job.Status.Scaling != nil && p.Job.Status.Scaling.Plan != nil
	return len(p.plans) > 0 || hasRecord
}

// planTable returns the last plans, the newest last. The job records the last one that it executed, which
// may be gone.
func (p *page) planTable() cli.Table {
	rows := cli.Table{{"AGE", "PLAN", "PHASE", "ORIGIN", "CHANGE", "REASON", "MESSAGE"}}
	record := (*v2alpha1.PlanRecord)(nil)
	if p.Job.Status.Scaling != nil {
		record = p.Job.Status.Scaling.Plan
	}
	isListed := func(plan v2alpha1.ScalePlan) bool { return string(plan.UID) == record.UID }
	if record != nil && !slices.ContainsFunc(p.plans, isListed) {
		age := none
		if record.CreationTime != nil {
			age = p.age(&record.CreationTime.Time)
		}
		rows = append(rows, []string{age, record.Name, string(record.Phase), "deleted", "", "", record.Message})
	}
	for i := range p.plans[max(0, len(p.plans)-mostShown):] {
		rows = append(rows, plans.Row(&p.plans[max(0, len(p.plans)-mostShown)+i], p.Now))
	}
	return rows
}
