// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// The bounds of a query.
const (
	MostRows    = 200
	usualRows   = 50
	mostOffset  = 1_000_000
	mostPhases  = 20
	longestText = 200
)

// Query selects a window of the jobs.
type Query struct {
	Namespace string
	Phases    []string
	Words     []string
	Offset    int
	Limit     int
	column    func(a, b *api.JobRow) int
	byCurve   bool
	descends  bool
}

// ParseQuery reads the parameters of a request. The error names the parameter, its value and what
// would be right.
func ParseQuery(values url.Values) (*Query, error) {
	query := &Query{Namespace: values.Get("namespace"), Phases: values["phase"]}
	search := values.Get("search")
	switch {
	case len(query.Namespace) > 63:
		return nil, fmt.Errorf("namespace has %d characters: want at most 63", len(query.Namespace))
	case len(search) > longestText:
		return nil, fmt.Errorf("search has %d characters: want at most %d", len(search), longestText)
	case len(query.Phases) > mostPhases:
		return nil, fmt.Errorf("phase is given %d times: want at most %d", len(query.Phases), mostPhases)
	}
	query.Words = strings.Fields(strings.ToLower(search))
	given := cmp.Or(values.Get("sort"), "-createdAt")
	name, descends := strings.CutPrefix(given, "-")
	all := columns()
	if query.column = all[name]; query.column == nil {
		return nil, fmt.Errorf("sort %q: want one of %s, or - before it", short(given), strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	query.byCurve, query.descends = name == "curve", descends
	var err error
	if query.Offset, err = Number(values, "offset", 0, 0, mostOffset); err != nil {
		return nil, err
	}
	query.Limit, err = Number(values, "limit", usualRows, 1, MostRows)
	return query, err
}

// Number returns a parameter that must be a number within bounds.
func Number(values url.Values, name string, otherwise, least, most int) (int, error) {
	given := values.Get(name)
	if given == "" {
		return otherwise, nil
	}
	number, err := strconv.Atoi(given)
	if err != nil || number < least || number > most {
		return 0, fmt.Errorf("%s %q: want a number from %d to %d", name, short(given), least, most)
	}
	return number, nil
}

// short bounds what an error repeats.
func short(given string) string { return given[:min(len(given), longestText)] }

func (q *Query) matches(entry *Entry) bool {
	if q.Namespace != "" && entry.Namespace != q.Namespace {
		return false
	}
	return !slices.ContainsFunc(q.Words, func(word string) bool { return !strings.Contains(entry.words, word) })
}

func (q *Query) hasPhase(phase string) bool {
	return len(q.Phases) == 0 || slices.Contains(q.Phases, phase)
}

func (q *Query) compare(a, b *item) int {
	order := q.column(&a.Row, &b.Row)
	if q.byCurve {
		order = cmp.Compare(a.history.Last(), b.history.Last())
	}
	if q.descends {
		order = -order
	}
	return cmp.Or(order, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// columns returns the columns that a page can be sorted by. The history of a job has its curve.
func columns() map[string]func(a, b *api.JobRow) int {
	return map[string]func(a, b *api.JobRow) int{
		"name":      func(a, b *api.JobRow) int { return cmp.Compare(a.Name, b.Name) },
		"namespace": func(a, b *api.JobRow) int { return cmp.Compare(a.Namespace, b.Namespace) },
		"phase":     func(a, b *api.JobRow) int { return cmp.Compare(a.Phase, b.Phase) },
		"reason":    func(a, b *api.JobRow) int { return cmp.Compare(a.Reason, b.Reason) },
		"ready":     func(a, b *api.JobRow) int { return cmp.Compare(a.Ready, b.Ready) },
		"gpus":      func(a, b *api.JobRow) int { return cmp.Compare(a.GPUs, b.GPUs) },
		"restarts":  func(a, b *api.JobRow) int { return cmp.Compare(a.Restarts, b.Restarts) },
		"createdAt": func(a, b *api.JobRow) int { return a.CreatedAt.Compare(b.CreatedAt) },
		"curve":     func(*api.JobRow, *api.JobRow) int { return 0 },
	}
}
