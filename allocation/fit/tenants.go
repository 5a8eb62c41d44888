// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/allocation/tenancy"
)

// division divides the capacity of a round among tenants, and a tenant's part among its jobs. Amounts are of each
// divided resource.
type division struct {
	Fit
	round *allocation.Round
	axes  []int
	// jobs are in their order, also those of each tenant. tenants are in the order of their first jobs.
	jobs     []*allocation.Job
	byTenant map[string][]*allocation.Job
	tenants  []string
	// mosts are the replicas of the elastic task that jobs may have; none for those that may not run.
	mosts map[types.NamespacedName]int32
}

// none is the replicas of a job that does not run.
const none = -1

// divide returns the round so that its jobs want at most the shares of their tenants, and the jobs that may not run, in
// their order. A tenant that is alone has all.
func (f Fit) divide(round *allocation.Round) (bounded *allocation.Round, beyond []*allocation.Job) {
	d := f.newDivision(round)
	if len(d.tenants) < 2 {
		return round, nil
	}
	d.divide()
	changed := *round
	changed.Jobs = nil
	for _, job := range d.jobs {
		switch most := d.mosts[job.Name]; {
		case most == none:
			beyond = append(beyond, job)
		case job.Elastic >= 0 && most < job.Wanted:
			limited := *job
			limited.Wanted = most
			changed.Jobs = append(changed.Jobs, &limited)
		default:
			changed.Jobs = append(changed.Jobs, job)
		}
	}
	return &changed, beyond
}

func (f Fit) newDivision(round *allocation.Round) *division {
	d := &division{
		Fit: f, round: round, axes: tenancy.Axes(round.Jobs), jobs: allocation.InOrder(round.Jobs), byTenant: map[string][]*allocation.Job{},
		mosts: make(map[types.NamespacedName]int32, len(round.Jobs)),
	}
	for _, job := range d.jobs {
		d.mosts[job.Name] = none
		tenant := round.TenantOf(job)
		if d.byTenant[tenant] == nil {
			d.tenants = append(d.tenants, tenant)
		}
		d.byTenant[tenant] = append(d.byTenant[tenant], job)
	}
	return d
}

// divide sets what jobs may have: those of each tenant of its part, and then all jobs of what is left.
func (d *division) divide() {
	rest := make([]int64, len(d.axes))
	for i, left := range d.parts() {
		d.grant(d.byTenant[d.tenants[i]], left)
		for at := range left {
			rest[at] += left[at]
		}
	}
	d.grant(d.jobs, rest)
}

// parts returns what each tenant may have of each resource. Jobs that the nodes could not even hold alone claim nothing.
func (d *division) parts() [][]int64 {
	empty, parts := allocation.NewBoard(d.round.Nodes), make([][]int64, len(d.tenants))
	for _, axis := range d.axes {
		claims := make([]shares.Claim, len(d.tenants))
		for i, tenant := range d.tenants {
			claims[i].Weight = d.round.Tenants.Weight(tenant)
			for _, job := range d.byTenant[tenant] {
				if d.had(job) != none || fits(empty, job) {
					claims[i].Wants += int(tenancy.Amount(job, axis, most(job)))
				}
			}
		}
		for i, part := range shares.Divide(int(tenancy.Capacity(d.round, axis)), claims) {
			parts[i] = append(parts[i], int64(part))
		}
	}
	return parts
}

// grant raises what jobs, which are in their order, may have by what is left of each resource. Jobs of a priority keep what they
// have before others start. If not all jobs can keep that, each keeps its least replicas first, also of a low priority: jobs
// shrink before any of them stops.
func (d *division) grant(jobs []*allocation.Job, left []int64) {
	if d.isLess(jobs, left) {
		d.raiseAll(jobs, left, func(job *allocation.Job) int32 { return min(d.least(job), d.had(job)) })
	}
	for begin := 0; begin < len(jobs); {
		end := begin
		for end < len(jobs) && jobs[end].Priority == jobs[begin].Priority {
			end++
		}
		d.raiseAll(jobs[begin:end], left, d.had)
		d.raiseAll(jobs[begin:end], left, d.least)
		begin = end
	}
	d.raiseAll(jobs, left, d.most)
}

// isLess reports whether what is left is less than what jobs have.
func (d *division) isLess(jobs []*allocation.Job, left []int64) bool {
	for at, axis := range d.axes {
		var sum int64
		for _, job := range jobs {
			if had := d.had(job); had != none && d.mosts[job.Name] == none {
				sum += tenancy.Amount(job, axis, had)
			}
		}
		if sum > left[at] {
			return true
		}
	}
	return false
}

func (d *division) raiseAll(jobs []*allocation.Job, left []int64, to func(*allocation.Job) int32) {
	for _, job := range jobs {
		d.raise(job, left, to(job))
	}
}

// raise raises what a job may have to a number of replicas, as far as what is left allows.
func (d *division) raise(job *allocation.Job, left []int64, to int32) {
	has := d.mosts[job.Name]
	if to <= has {
		return
	}
	for at, axis := range d.axes {
		fixed, each := tenancy.Amount(job, axis, 0), tenancy.Amount(job, axis, 1)-tenancy.Amount(job, axis, 0)
		switch free := left[at] + d.taken(job, axis); {
		case fixed > free:
			return
		case each > 0:
			to = int32(min(int64(to), (free-fixed)/each, math.MaxInt32))
		}
	}
	if to < d.least(job) || to <= has {
		return
	}
	for at, axis := range d.axes {
		left[at] += d.taken(job, axis) - tenancy.Amount(job, axis, to)
	}
	d.mosts[job.Name] = to
}

// taken returns what a job has been granted of a resource.
func (d *division) taken(job *allocation.Job, axis int) int64 {
	if has := d.mosts[job.Name]; has != none {
		return tenancy.Amount(job, axis, has)
	}
	return 0
}

// had returns the replicas that a job has and still wants.
func (d *division) had(job *allocation.Job) int32 {
	previous := d.round.Previous[job.Name]
	elastic, fits := job.ElasticOf(len(previous))
	if !fits || len(previous) == 0 {
		return none
	}
	return min(elastic, most(job))
}

// least returns the least replicas of a job. Ranks that have succeeded would start again in another size.
func (d *division) least(job *allocation.Job) int32 {
	switch had := d.had(job); {
	case job.Elastic < 0:
		return 0
	case len(job.Ended) > 0 && had != none:
		return had
	}
	return job.Min
}

// most returns the most replicas that a job may get now. A job that has been placed a short time ago does not grow.
func (d *division) most(job *allocation.Job) int32 {
	if had := d.had(job); had != none && (job.Held < d.holdTime(job.Usage.Restarts) || len(job.Ended) > 0) {
		return had
	}
	return most(job)
}

func most(job *allocation.Job) int32 {
	if job.Elastic < 0 {
		return 0
	}
	return max(job.Wanted, job.Min)
}

// placeBeyond lets jobs beyond the shares of their tenants have what is idle: where they are, or elsewhere.
func (d *decision) placeBeyond(jobs []*allocation.Job) {
	var moved []*allocation.Job
	for _, job := range jobs {
		kept := d.board.Keep(job, d.round.Previous[job.Name])
		if kept == nil || !kept.IsComplete() {
			if kept != nil {
				d.board.Release(kept)
			}
			moved = append(moved, job)
			continue
		}
		d.board.KeepEnded(kept)
		d.put(kept)
	}
	for _, job := range moved {
		found := d.board.Place(job)
		d.placements[job.Name] = found
		if len(found.Nodes) > 0 {
			d.put(d.board.Seated(job, found.Nodes))
		}
	}
}

// explainBounds says of the jobs that have all that the shares of their tenants allow what they want.
func (d *decision) explainBounds(round *allocation.Round) {
	bounds := make(map[types.NamespacedName]int32, len(d.round.Jobs))
	for _, job := range d.round.Jobs {
		bounds[job.Name] = job.Wanted
	}
	for _, job := range round.Jobs {
		placement := d.placements[job.Name]
		if bound, isBounded := bounds[job.Name]; isBounded && bound < job.Wanted && placement.Reason == allocation.ReasonPlaced {
			placement.Reason = allocation.ReasonPartiallyPlaced
			placement.Message += fmt.Sprintf("; %d of task %s are desired", job.Wanted, job.Tasks[job.Elastic].Name)
			d.placements[job.Name] = placement
		}
	}
}
