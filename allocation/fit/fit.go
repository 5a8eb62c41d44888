// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
)

// Fit is the policy that places each job on the fewest nodes that hold it, and
// leaves it there, also where it must have more replicas by now than there is room
// for. A job that finds no room for all the replicas it wants gets
// as many as there is room for, if these are enough; it grows again when there
// is room and no job waits that the nodes could hold.
type Fit struct {
	// GrowAfter is for how long a job is left as it is before it grows: that
	// restarts it, and room often comes bit by bit.
	GrowAfter time.Duration
}

var _ allocation.Policy = Fit{}

// Allocate implements Policy.
func (Fit) Allocate(job *allocation.Job, nodes []*allocation.Node) allocation.Placement {
	b := allocation.NewBoard(nodes)
	b.Leave(nodes)
	return b.Place(job)
}

// Optimize implements Policy. Jobs that are where they can stay go first, in
// spite of others' priorities: moving one costs it a restart.
func (f Fit) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	jobs, nodes, previous := round.Jobs, round.Nodes, round.Previous
	b := allocation.NewBoard(nodes)
	placements := make(map[types.NamespacedName]allocation.Placement, len(jobs))
	var waiting []*allocation.Job
	var stays, incomplete []*allocation.Stay
	for _, job := range allocation.InOrder(jobs) {
		kept := b.Keep(job, previous[job.Name])
		switch {
		case kept == nil:
			waiting = append(waiting, job)
			continue
		case kept.IsComplete():
			placements[job.Name] = kept.Placement()
		default:
			incomplete = append(incomplete, kept)
		}
		stays = append(stays, kept)
	}
	// What has ended is to drive out nothing that runs.
	for _, kept := range stays {
		b.KeepEnded(kept)
	}
	b.Leave(nodes)
	for _, kept := range incomplete {
		if b.Complete(kept) {
			placements[kept.Job.Name] = kept.Placement()
		} else {
			placements[kept.Job.Name] = placeOrStay(b, kept.Job, previous[kept.Job.Name])
		}
	}
	for _, job := range waiting {
		placements[job.Name] = b.Place(job)
	}
	if !areAnyWaiting(jobs, nodes, placements) {
		f.growAll(b, jobs, placements)
	}
	return placements
}

// placeOrStay places a job again that must be larger. If there is no capacity for that, it keeps its
// placement.
func placeOrStay(b *allocation.Board, job *allocation.Job, previous []string) allocation.Placement {
	found := b.Place(job)
	if len(found.Nodes) > 0 || slices.Contains(previous, "") {
		return found
	}
	left := b.Hold(job, previous)
	b.KeepEnded(left)
	return left.Placement()
}

// areAnyWaiting reports whether a job has no place, or too small a one, that could
// have one if no other was there. One that the nodes cannot hold at all keeps nobody from growing.
func areAnyWaiting(jobs []*allocation.Job, nodes []*allocation.Node, placements map[types.NamespacedName]allocation.Placement) bool {
	var empty *allocation.Board
	for _, job := range jobs {
		size := len(placements[job.Name].Nodes)
		if elastic, _ := job.ElasticOf(size); size > 0 && elastic >= job.Min {
			continue
		}
		if empty == nil {
			empty = allocation.NewBoard(nodes)
		}
		if found := empty.Place(job); len(found.Nodes) > 0 {
			return true
		}
	}
	return false
}

// growAll lets the jobs grow that got fewer replicas than they want. What ranks
// have done that have succeeded is not done again for that.
func (f Fit) growAll(b *allocation.Board, jobs []*allocation.Job, placements map[types.NamespacedName]allocation.Placement) {
	for _, job := range allocation.InOrder(jobs) {
		before := placements[job.Name]
		if before.Reason != allocation.ReasonPartiallyPlaced || job.Held < f.GrowAfter || len(job.Ended) > 0 {
			continue
		}
		if grown, grows := b.Grow(job, before.Nodes, 1); grows {
			placements[job.Name] = grown
		}
	}
}
