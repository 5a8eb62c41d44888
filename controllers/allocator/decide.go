// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/spread"
	"opendilab.org/di-orchestrator/allocation/tenancy"
	"opendilab.org/di-orchestrator/allocation/topology"
	"opendilab.org/di-orchestrator/controllers/allocator/histories"
	"opendilab.org/di-orchestrator/controllers/allocator/spans"
	"opendilab.org/di-orchestrator/controllers/allocator/survey"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
)

// decide lets the policy place the jobs of a round.
func (a *Reconciler) decide(ctx context.Context, found *survey.Cluster) *round {
	r := &round{found: found, refreshes: maxRefreshes}
	r.input, a.memory = survey.Take(found, a.memory)
	r.restarts = a.describe(ctx, r)
	wanted := allocation.InOrder(slices.Collect(maps.Values(r.input.Wanted)))
	asked := &allocation.Round{
		Now: found.Now, Jobs: wanted, Nodes: r.input.Snapshot.Nodes, Previous: r.input.Previous, Quotas: r.input.Quotas,
		Groups: a.groups.known.Groups, Tenants: a.tenants,
	}
	decided := allocation.Within(a.policy, asked)
	spread.Explain(asked, decided)
	r.standings = tenancy.Standings(asked, decided)
	tenancy.Explain(asked, decided, r.standings)
	a.groups.known.Use(wanted, found.Now)
	r.placements = r.input.Settled
	for name, placement := range decided {
		if wanted := r.input.Wanted[name]; wanted != nil {
			placement.Usage = usage.Merge(&wanted.Usage, &placement.Usage, wanted.Restarts(r.input.Placed[name], placement.Nodes))
		}
		r.placements[name] = placement
	}
	return r
}

// describe completes the jobs of a round by their groups, reports and usages. It returns the restarts that have ended.
func (a *Reconciler) describe(ctx context.Context, r *round) map[types.UID]usage.Restart {
	now, restarts := r.found.Now, map[types.UID]usage.Restart{}
	a.reports = a.read(ctx, r)
	tree, places := a.locate(r)
	for _, job := range r.found.Jobs {
		entry := a.reports[job.UID]
		wanted := r.input.Wanted[client.ObjectKeyFromObject(job)]
		if wanted == nil {
			continue
		}
		producers, _ := wanted.ElasticOf(len(job.Status.Allocation))
		wanted.Group, wanted.Usage = entry.group, usage.Of(&job.Status)
		wanted.Report = survey.Completed(job, entry.parsed, producers)
		wanted.ReportedAt = entry.changedAt
		entry.seen = entry.seen.After(entry.parsed, spans.PlaceOf(wanted, job.Status.Allocation, tree, places))
		wanted.Measured = entry.seen.Measured()
		wanted.Totals = a.groups.known.Totals(entry.group, job.Namespace)
		if ended, isOver := usage.EndOfRestart(job, r.found.Pods[job.UID], entry.changedAt, now); isOver {
			restarts[job.UID] = ended
			usage.Adjust(&wanted.Usage, job.Status.AllocationUsage, &ended, now)
		} else {
			usage.Adjust(&wanted.Usage, job.Status.AllocationUsage, nil, now)
		}
	}
	return restarts
}

// locate returns the domains of the nodes, nil if these are of one, and their places by name.
func (a *Reconciler) locate(r *round) (*topology.Tree, map[string]int) {
	tree, places := allocation.TreeOf(r.input.Snapshot.Nodes), map[string]int{}
	if tree != nil {
		for at, node := range r.input.Snapshot.Nodes {
			places[node.Object.Name] = at
		}
	}
	return tree, places
}

// read reads the reports of jobs, and the groups of those that want a place.
func (a *Reconciler) read(ctx context.Context, r *round) reports {
	known := make(reports, len(r.found.Jobs))
	var groups []string
	for _, job := range r.found.Jobs {
		entry := a.reports.of(job, r.found.Now)
		known[job.UID] = entry
		if entry.isNewlyUnreadable {
			a.reportUnreadable(ctx, job, entry.err)
		}
		if r.input.Wanted[client.ObjectKeyFromObject(job)] != nil {
			groups = append(groups, histories.Names(entry.group, job.Namespace)...)
		}
	}
	a.groups.restore(ctx, groups, r.found.Now)
	return known
}
