// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fit is the policy that gives each job as many replicas as the nodes can hold.
//
// Jobs that run keep their nodes. The others are placed by priority, then by age, each on the fewest
// nodes that hold it. A job that finds no capacity for all desired replicas gets as many as fit, if
// these are enough, and grows later.
//
// A job without capacity waits. If it has a higher priority than jobs that run, it preempts some of
// them: see preempt. If it has waited for ReserveAfter, it reserves nodes: see reserve.
package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
)

const (
	defaultMaxGrowAfter = time.Hour
	defaultMinGain      = 0.2
	defaultReserveAfter = 10 * time.Minute
)

// Fit is the policy.
type Fit struct {
	// GrowAfter is how long a job keeps its placement before it grows, because that restarts it, and
	// capacity often becomes free bit by bit. It doubles with each restart by a changed placement, up
	// to MaxGrowAfter: an hour by default.
	GrowAfter, MaxGrowAfter time.Duration
	// MinGain is the least part of its replicas that a job gains when it grows: 0.2 by default. A job
	// that reaches its desired size may gain less.
	MinGain float64
	// ReserveAfter is how long a job waits before it reserves nodes: ten minutes by default.
	ReserveAfter time.Duration
}

var _ allocation.Policy = Fit{}

// Allocate implements allocation.Policy.
func (Fit) Allocate(job *allocation.Job, nodes []*allocation.Node) allocation.Placement {
	b := allocation.NewBoard(nodes)
	b.Leave(nodes)
	return b.Place(job)
}

// Optimize implements allocation.Policy. Jobs that can keep their nodes are first, despite the priority
// of others, because another placement restarts them.
func (f Fit) Optimize(r *allocation.Round) map[types.NamespacedName]allocation.Placement {
	round := r
	var beyond []*allocation.Job
	if r.Tenants != nil {
		round, beyond = f.divide(r)
	}
	d := &decision{
		Fit: f, round: round, board: allocation.NewBoard(r.Nodes), stays: make(map[types.NamespacedName]*allocation.Stay, len(r.Jobs)),
		placements: make(map[types.NamespacedName]allocation.Placement, len(r.Jobs)),
		preemptors: map[types.NamespacedName]*allocation.Job{},
	}
	for _, incomplete := range d.keep() {
		d.complete(incomplete)
	}
	slices.SortStableFunc(d.waiting, allocation.Compare)
	for len(d.waiting) > 0 {
		job := d.waiting[0]
		d.waiting = d.waiting[1:]
		d.place(job)
	}
	d.placeBeyond(beyond)
	if !d.isAnyWaiting() {
		d.grow()
	}
	d.explainBounds(r)
	return d.placements
}

// decision is a round while it is decided.
type decision struct {
	Fit
	round *allocation.Round
	board *allocation.Board
	// placements are the decisions, and stays the capacity of the placed jobs.
	placements map[types.NamespacedName]allocation.Placement
	stays      map[types.NamespacedName]*allocation.Stay
	// waiting are the jobs that are not decided, in their order.
	waiting []*allocation.Job
	// preemptors are the jobs for which others were shrunk or stopped, by the latter.
	preemptors map[types.NamespacedName]*allocation.Job
	// reserving is the job that has reserved nodes.
	reserving *allocation.Job
}

// put records the placement of a job whose capacity is taken.
func (d *decision) put(stay *allocation.Stay) {
	d.stays[stay.Job.Name], d.placements[stay.Job.Name] = stay, stay.Placement()
}

// keep lets jobs keep their nodes. It returns the jobs that keep some of them.
func (d *decision) keep() []*allocation.Stay {
	var moved []*allocation.Job
	var incomplete []*allocation.Stay
	for _, job := range allocation.InOrder(d.round.Jobs) {
		switch kept := d.board.Keep(job, d.round.Previous[job.Name]); {
		case kept == nil:
			moved = append(moved, job)
		case kept.IsComplete():
			d.put(kept)
		default:
			incomplete = append(incomplete, kept)
		}
	}
	d.board.Settle()
	for _, job := range moved {
		if kept := d.board.KeepSome(job, d.round.Previous[job.Name]); kept != nil {
			incomplete = append(incomplete, kept)
		} else {
			d.waiting = append(d.waiting, job)
		}
	}
	// Ranks that have ended must not evict what runs.
	for _, job := range allocation.InOrder(d.round.Jobs) {
		if kept := d.stays[job.Name]; kept != nil {
			d.board.KeepEnded(kept)
		}
	}
	for _, kept := range incomplete {
		d.board.KeepEnded(kept)
	}
	d.board.Leave(d.round.Nodes)
	return incomplete
}

// complete finds nodes for the ranks of a job that have none. The other ranks keep theirs: all ranks
// restart, but images and files are on these nodes. If there is no capacity, the job is placed as a
// whole. If that fails as well, and only its range has changed, the job continues as it is.
func (d *decision) complete(kept *allocation.Stay) {
	job, previous := kept.Job, d.round.Previous[kept.Job.Name]
	if d.board.Complete(kept) {
		d.put(kept)
		return
	}
	if found := d.board.Place(job); len(found.Nodes) > 0 {
		d.put(d.board.Seated(job, found.Nodes))
		return
	}
	unchanged := *job
	if had, possible := job.ElasticOf(len(previous)); possible {
		unchanged.Min, unchanged.Wanted = min(job.Min, had), max(job.Wanted, had)
	}
	held := d.board.Keep(&unchanged, previous)
	if held == nil || !held.IsComplete() {
		if held != nil {
			d.board.Release(held)
		}
		d.waiting = append(d.waiting, job)
		return
	}
	held.Job = job
	d.board.KeepEnded(held)
	d.put(held)
}

// place places a waiting job, if necessary in place of others. Otherwise it may reserve nodes.
func (d *decision) place(job *allocation.Job) {
	found := d.board.Place(job)
	if len(found.Nodes) == 0 && d.preempt(job) {
		found = d.board.Place(job)
	}
	if len(found.Nodes) > 0 {
		d.put(d.board.Seated(job, found.Nodes))
		return
	}
	if by := d.preemptors[job.Name]; by != nil {
		found.Message = fmt.Sprintf("stopped for job %s of higher priority: %s", by.Name, found.Message)
	}
	d.placements[job.Name] = found
	d.reserve(job)
}

// isAnyWaiting reports whether a job waits, or has fewer replicas than it must, although the nodes could
// hold it without other jobs.
func (d *decision) isAnyWaiting() bool {
	var empty *allocation.Board
	for _, job := range d.round.Jobs {
		size := len(d.placements[job.Name].Nodes)
		if elastic, _ := job.ElasticOf(size); size > 0 && elastic >= job.Min {
			continue
		}
		if empty == nil {
			empty = allocation.NewBoard(d.round.Nodes)
		}
		if found := empty.Place(job); len(found.Nodes) > 0 {
			return true
		}
	}
	return false
}

// grow lets partially placed jobs grow. A job with ended ranks does not, because they would start again. One that is
// resized live grows at once, because that costs nothing.
func (d *decision) grow() {
	for _, job := range allocation.InOrder(d.round.Jobs) {
		before := d.placements[job.Name]
		switch {
		case before.Reason != allocation.ReasonPartiallyPlaced || len(job.Ended) > 0:
			continue
		case job.ResizesLive:
			d.put(d.board.Extend(d.stays[job.Name]))
			continue
		case job.Held < d.holdTime(job.Usage.Restarts):
			continue
		}
		gain := int(math.Ceil(cmp.Or(d.MinGain, defaultMinGain) * float64(len(before.Nodes))))
		if grown, grows := d.board.Grow(job, before.Nodes, max(gain, 1)); grows {
			d.put(d.board.Seated(job, grown.Nodes))
		}
	}
}

// holdTime returns how long a job keeps its placement before it grows.
func (f Fit) holdTime(restarts int) time.Duration {
	hold, most := f.GrowAfter, max(f.GrowAfter, cmp.Or(f.MaxGrowAfter, defaultMaxGrowAfter))
	for range restarts {
		if hold <= 0 || hold >= most {
			break
		}
		hold *= 2
	}
	return min(hold, most)
}
