// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// decide lets the policy place the jobs of a round.
func (a *Reconciler) decide(ctx context.Context, jobs []*v2alpha1.DIJob, r *round) {
	a.describe(ctx, jobs, r)
	wanted := allocation.InOrder(slices.Collect(maps.Values(r.wanted)))
	decided := allocation.Within(a.policy, &allocation.Round{
		Now: r.now, Jobs: wanted, Nodes: r.snapshot.Nodes, Previous: r.previous, Quotas: r.quotas, Groups: a.groups.groups,
	})
	a.groups.use(wanted, r.now)
	for name, placement := range decided {
		if wanted := r.wanted[name]; wanted != nil {
			placement.Usage = mergeUsage(&wanted.Usage, &placement.Usage, wanted.Restarts(r.placed[name], placement.Nodes))
		}
		r.placements[name] = placement
	}
}

// describe completes the jobs of a round by their groups, reports and usages.
func (a *Reconciler) describe(ctx context.Context, jobs []*v2alpha1.DIJob, r *round) {
	known := make(reports, len(jobs))
	for _, job := range jobs {
		entry := a.reports.of(job, r.now)
		known[job.UID] = entry
		if entry.isNewlyUnreadable {
			a.reportUnreadable(ctx, job, entry.err)
		}
		wanted := r.wanted[client.ObjectKeyFromObject(job)]
		if wanted == nil {
			continue
		}
		wanted.Group, wanted.Report, wanted.Usage = entry.group, entry.parsed, usageOf(&job.Status)
		wanted.Totals = a.groups.totals(entry.group, job.Namespace)
		if ended, isOver := endOfRestart(job, r.pods[job.UID], entry.changedAt, r.now); isOver {
			r.restarts[job.UID] = ended
			adjust(&wanted.Usage, job.Status.AllocationUsage, &ended, r.now)
		} else {
			adjust(&wanted.Usage, job.Status.AllocationUsage, nil, r.now)
		}
	}
	a.reports = known
}
