// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ledger is what was seen of the pods of one job each.
type ledger struct {
	// wanted is how many pods of a job must be bound before one of them runs.
	wanted int

	// mutex guards what follows.
	mutex sync.Mutex
	jobs  map[string]*entry
	// holding is how many pods are on nodes and have not ended, and most the most
	// that ever were.
	holding, most int
}

// entry is one job.
type entry struct {
	job       string
	submitted time.Time
	// bound are its pods that were ever bound, and whether they have not ended.
	bound map[types.UID]bool
	// first and placed are when the first pod, and when as many as are wanted, were bound.
	first, placed time.Time
	// early is when a pod was first seen to run while fewer than wanted were bound.
	early time.Time
}

// sight is one look at a pod.
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

// submit notes when a job was submitted.
func (l *ledger) submit(job string, at time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.of(job).submitted = at
}

// of is called with the mutex held.
func (l *ledger) of(job string) *entry {
	if l.jobs[job] == nil {
		l.jobs[job] = &entry{job: job, bound: map[types.UID]bool{}}
	}
	return l.jobs[job]
}

// see notes what was seen of a pod.
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

// placing is one job as it was placed.
type placing struct {
	job string
	// waited is from its submission until as many pods as are wanted were bound, and
	// spread from the first of these to the last.
	waited, spread time.Duration
	// after is when that was, from the first submission.
	after time.Duration
	// early is how long it was that pods ran while fewer were bound; 0 where none did.
	early time.Duration
	// order is its place in the order of submission, from 0.
	order int
}

// placings returns the jobs in the order in which they were placed. What never was
// counts as until now.
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

// mostAtOnce is how many pods were on nodes at a time, and had not ended.
func (l *ledger) mostAtOnce() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.most
}

// overtaken returns for each job how many that were submitted later were placed
// earlier. Jobs come in the order in which they were placed.
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
