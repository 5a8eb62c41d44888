// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the jobs that the caller may see, and answers for a window of them.
package store

import (
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
)

// Store is the jobs that a watch delivers.
type Store struct {
	clock clock.PassiveClock

	mutex   sync.Mutex
	items   map[types.NamespacedName]*item
	version int64
	// changed is closed at the next change.
	changed chan struct{}
	synced  bool
	broken  error
}

// item is a job and its past.
type item struct {
	*Entry
	history pages.History
	moments []moment
}

// New returns an empty store.
func New(clk clock.PassiveClock) *Store {
	return &Store{clock: clk, items: map[types.NamespacedName]*item{}, changed: make(chan struct{})}
}

// Apply applies a change of a watch of jobs that Reduce has reduced.
func (s *Store) Apply(change cluster.Change) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if entry, is := change.Object.(*Entry); is {
		s.keep(entry, change.Gone)
	}
	switch {
	case change.Complete:
		s.synced = true
	case change.Broken != nil:
		s.broken = change.Broken
	case change.Restored:
		s.broken = nil
	}
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Stopped records why the watch has ended. A user whose right was denied sees no jobs any longer.
func (s *Store) Stopped(err error) {
	if cluster.IsDenied(err) {
		s.mutex.Lock()
		clear(s.items)
		s.mutex.Unlock()
	}
	s.Apply(cluster.Change{Broken: err})
}

func (s *Store) keep(entry *Entry, gone bool) {
	key := types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}
	known := s.items[key]
	switch {
	case gone:
		delete(s.items, key)
		return
	case known == nil || known.UID != entry.UID:
		known = &item{Entry: entry}
		s.items[key] = known
	default:
		known.remember(entry, s.clock.Now())
		known.Entry = entry
	}
	known.history.Record(entry.Job, s.clock.Now())
}

// Changed returns a channel that is closed at the next change.
func (s *Store) Changed() <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.changed
}

// Broken returns why the jobs may be outdated; nil if they are not.
func (s *Store) Broken() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.broken
}

// Past is what is remembered of a job.
type Past struct {
	Version string
	Moments []api.Moment
	Curves  []api.Curve
	Best    *api.Curve
	// Report is the last report of the job, indented.
	Report string
}

// Has reports whether the store has this state of a job. It has all states of a job that it does not know.
func (s *Store) Has(job *v2alpha1.DIJob) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known := s.items[types.NamespacedName{Namespace: job.Namespace, Name: job.Name}]
	return known == nil || known.UID == job.UID && known.ResourceVersion == job.ResourceVersion
}

// Past returns what is remembered of a job.
func (s *Store) Past(key types.NamespacedName) Past {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known := s.items[key]
	if known == nil {
		return Past{}
	}
	return Past{
		Version: known.Row.Version, Moments: known.past(), Curves: known.history.Curves(), Best: known.history.Best(),
		Report: known.history.Report(),
	}
}

// Entries returns all jobs. They must not be changed.
func (s *Store) Entries() []*Entry {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := make([]*Entry, 0, len(s.items))
	for _, known := range s.items {
		all = append(all, known.Entry)
	}
	return all
}

// Page returns the window of a query.
func (s *Store) Page(query *Query) api.JobPage {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	page := api.JobPage{
		Total: len(s.items), Offset: query.Offset, Phases: map[string]int{}, Namespaces: []string{}, Items: []api.JobRow{},
		ResourceVersion: strconv.FormatInt(s.version, 10), Synced: s.synced,
	}
	namespaces := map[string]bool{}
	matching := make([]*item, 0, len(s.items))
	for _, known := range s.items {
		if !namespaces[known.Namespace] {
			namespaces[known.Namespace] = true
			page.Namespaces = append(page.Namespaces, known.Namespace)
		}
		if !query.matches(known.Entry) {
			continue
		}
		page.Phases[known.Row.Phase]++
		if query.hasPhase(known.Row.Phase) {
			matching = append(matching, known)
		}
	}
	slices.Sort(page.Namespaces)
	slices.SortFunc(matching, query.compare)
	page.Matching = len(matching)
	from := min(query.Offset, len(matching))
	for _, known := range matching[from:min(from+query.Limit, len(matching))] {
		row := known.Row
		row.Curve = known.history.Best()
		page.Items = append(page.Items, row)
	}
	return page
}
