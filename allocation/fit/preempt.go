// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"fmt"
	"slices"

	"opendilab.org/di-orchestrator/allocation"
)

// The levels of preemption of a job.
const (
	untouched = iota
	shrunk
	stopped
)

// victim is a job of lower priority that may be preempted.
type victim struct {
	stay *allocation.Stay
	// least is the job with its least size; nil before it was shrunk.
	least *allocation.Stay
	level int
}

// preempt makes room for a job that does not fit. It first shrinks elastic jobs of lower priority to
// their least size, one after the other, then it stops jobs of lower priority. The lowest priority is
// first, and of that the youngest job. It preempts only if the job then fits. Of the jobs that it would
// preempt it spares those without which the job fits as well, the oldest first. It reports whether the
// job fits now.
func (d *decision) preempt(job *allocation.Job) bool {
	victims := d.victims(job)
	if len(victims) == 0 || !d.fitsWithout(job, victims) {
		return false
	}
	trial := d.board.Clone()
	preemptUntilFits(trial, job, victims)
	spare(trial, job, victims)
	for _, v := range victims {
		d.carryOut(v, job)
	}
	return true
}

// victims returns the placed jobs of lower priority in the order in which they are preempted. Tenants do not preempt each
// other: they have shares.
func (d *decision) victims(job *allocation.Job) []*victim {
	var jobs []*allocation.Job
	for _, stay := range d.stays {
		if stay.Job.Priority < job.Priority && (d.round.Tenants == nil || d.round.TenantOf(stay.Job) == d.round.TenantOf(job)) {
			jobs = append(jobs, stay.Job)
		}
	}
	jobs = allocation.InOrder(jobs)
	slices.Reverse(jobs)
	var victims []*victim
	for _, job := range jobs {
		victims = append(victims, &victim{stay: d.stays[job.Name]})
	}
	return victims
}

// fitsWithout reports whether a job fits if all victims stop.
func (d *decision) fitsWithout(job *allocation.Job, victims []*victim) bool {
	trial := d.board.Clone()
	for _, v := range victims {
		trial.Release(v.stay)
	}
	return fits(trial, job)
}

func fits(trial *allocation.Board, job *allocation.Job) bool {
	nodes, fit := trial.PlaceLeast(job)
	if fit {
		trial.Return(job, nodes)
	}
	return fit
}

// preemptUntilFits raises the levels of victims until a job fits.
func preemptUntilFits(trial *allocation.Board, job *allocation.Job, victims []*victim) {
	for _, v := range victims {
		if v.least = trial.Shrink(v.stay); v.least == nil {
			continue
		}
		v.level = shrunk
		if fits(trial, job) {
			return
		}
	}
	for _, v := range victims {
		v.set(trial, stopped)
		if fits(trial, job) {
			return
		}
	}
}

// spare lowers the levels of victims as long as a job fits.
func spare(trial *allocation.Board, job *allocation.Job, victims []*victim) {
	for _, v := range slices.Backward(victims) {
		before := v.level
		for level := range before {
			if level == shrunk && v.least == nil {
				continue
			}
			if v.set(trial, level); fits(trial, job) {
				break
			}
			v.set(trial, before)
		}
	}
}

// set changes the level of a victim on a trial board.
func (v *victim) set(trial *allocation.Board, level int) {
	if held := v.held(); held != nil {
		trial.Release(held)
	}
	v.level = level
	if held := v.held(); held != nil {
		trial.Retake(held)
	}
}

// held returns the capacity of a victim at its level.
func (v *victim) held() *allocation.Stay {
	switch v.level {
	case untouched:
		return v.stay
	case shrunk:
		return v.least
	}
	return nil
}

// carryOut preempts a victim. A stopped one waits for other nodes.
func (d *decision) carryOut(v *victim, by *allocation.Job) {
	job := v.stay.Job
	switch v.level {
	case shrunk:
		d.board.Release(v.stay)
		d.board.Retake(v.least)
		d.put(v.least)
		placement := d.placements[job.Name]
		placement.Message = fmt.Sprintf("shrunk for job %s of higher priority: %s", by.Name, placement.Message)
		d.placements[job.Name] = placement
	case stopped:
		d.board.Release(v.stay)
		delete(d.stays, job.Name)
		delete(d.placements, job.Name)
		d.preemptors[job.Name] = by
		at, _ := slices.BinarySearchFunc(d.waiting, job, allocation.Compare)
		d.waiting = slices.Insert(d.waiting, at, job)
	}
}
