// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ledger records the observed pods of each job.
type ledger struct {
	// wanted is the number of pods of a job that must be bound before one of them runs.
	wanted int

	// mutex guards the fields below.
	mutex sync.Mutex
	jobs  map[string]*entry
	// holding is the number of pods that are bound to nodes and have not finished. most is its
	// maximum.
	holding, most int
}

// entry is the record of one job.
type entry struct {
	job       string
	submitted time.Time
	// bound maps the pods that were ever bound to whether they have not finished.
	bound map[types.UID]bool
	// first is when the first pod was bound, placed when the wanted number was.
	first, placed time.Time
	// early is when a pod was first observed running while fewer than wanted were bound.
	early time.Time
}

// sight is one observation of a pod.
type sight struct {
	job   string
	uid   types.UID
	bound bool
	runs  bool
	ended bool
	at    time.Time
}

func newLedger(wanted int) *ledger {
	return &ledger{wanted: wanted, jobs: map[string]*entry{}}
}

// submit records the submission of a job.
func (l *ledger) submit(job string, at time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.of(job).submitted = at
}

// of returns the entry of a job. The caller holds the mutex.
func (l *ledger) of(job string) *entry {
	if l.jobs[job] == nil {
		l.jobs[job] = &entry{job: job, bound: map[types.UID]bool{}}
	}
	return l.jobs[job]
}

// see records an observation of a pod.
func (l *ledger) see(s *sight) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !s.bound {
		return
	}
	e := l.of(s.job)
	if _, known := e.bound[s.uid]; !known {
		e.bind(s, l.wanted)
		l.holding++
		l.most = max(l.most, l.holding)
	}
	if s.runs && len(e.bound) < l.wanted && e.early.IsZero() {
		e.early = s.at
	}
	if s.ended && e.bound[s.uid] {
		e.bound[s.uid] = false
		l.holding--
	}
}

func (e *entry) bind(s *sight, wanted int) {
	e.bound[s.uid] = true
	if e.first.IsZero() {
		e.first = s.at
	}
	if len(e.bound) == wanted {
		e.placed = s.at
	}
}

// placing describes how one job was placed.
type placing struct {
	job string
	// waited is the time from its submission until the wanted number of pods was bound. spread is
	// the time from the first of these to the last.
	waited, spread time.Duration
	// after is when the job was placed, from the first submission.
	after time.Duration
	// early is how long pods ran while fewer than wanted were bound; 0 if none did.
	early time.Duration
	// order is its position in the order of submission, from 0.
	order int
}

// placings returns the jobs in the order in which they were placed. A job that was not placed
// counts as placed now.
func (l *ledger) placings(now time.Time) []placing {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	all := make([]*entry, 0, len(l.jobs))
	for _, e := range l.jobs {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.submitted.Compare(b.submitted) })
	placings := make([]placing, 0, len(all))
	for order, e := range all {
		placed := e.placed
		if placed.IsZero() {
			placed = now
		}
		p := placing{job: e.job, order: order, waited: placed.Sub(e.submitted), after: placed.Sub(all[0].submitted)}
		if !e.first.IsZero() {
			p.spread = placed.Sub(e.first)
		}
		if !e.early.IsZero() {
			p.early = placed.Sub(e.early)
		}
		placings = append(placings, p)
	}
	slices.SortStableFunc(placings, func(a, b placing) int { return int(a.after - b.after) })
	return placings
}

// mostAtOnce returns the maximum number of unfinished pods on nodes at a time.
func (l *ledger) mostAtOnce() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.most
}

// overtaken returns, for each job, how many later submitted jobs were placed earlier. The argument
// is in the order of placement.
func overtaken(placings []placing) []int {
	counts := make([]int, len(placings))
	for i := range placings {
		for _, earlier := range placings[:i] {
			if earlier.order > placings[i].order {
				counts[i]++
			}
		}
	}
	return counts
}
