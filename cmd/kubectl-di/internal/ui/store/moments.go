// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"strconv"
	"time"
	"unique"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// mostMoments bounds what is remembered of a job's past.
const mostMoments = 64

// moment is a change of a job. Thousands of jobs have dozens each, so that it is small, and becomes
// text when it is read.
type moment struct {
	at       int64 // milliseconds since 1970
	kind     kind
	from, to unique.Handle[string]
}

// kind is what changed.
type kind uint8

const (
	phaseChanged kind = iota
	restarted
	rescheduled
	resized
)

// remember records what changed between two states of a job.
func (i *item) remember(next *Entry, now time.Time) {
	add := func(kind kind, from, to string) {
		i.moments = append(i.moments, moment{now.UnixMilli(), kind, unique.Make(from), unique.Make(to)})
	}
	before, after := &i.Row, &next.Row
	if before.Phase != after.Phase {
		add(phaseChanged, before.Phase, after.Phase)
	}
	for _, count := range []struct {
		kind          kind
		before, after int
	}{
		{restarted, int(before.Restarts), int(after.Restarts)},
		{rescheduled, int(before.Reschedules), int(after.Reschedules)},
		{resized, before.Wanted, after.Wanted},
	} {
		if count.after > count.before || count.kind == resized && count.after != count.before && !replicas.IsFinished(next.Job) {
			add(count.kind, strconv.Itoa(count.before), strconv.Itoa(count.after))
		}
	}
	if extra := len(i.moments) - mostMoments; extra > 0 {
		i.moments = i.moments[:copy(i.moments, i.moments[extra:])]
	}
}

// past returns what is remembered of a job, in words.
func (i *item) past() []api.Moment {
	all := make([]api.Moment, 0, len(i.moments))
	for _, one := range i.moments {
		all = append(all, one.words())
	}
	return all
}

func (m moment) words() api.Moment {
	from, to := m.from.Value(), m.to.Value()
	words := api.Moment{At: time.UnixMilli(m.at).UTC()}
	switch m.kind {
	case phaseChanged:
		words.Kind, words.Title, words.Text = "phase", to, fmt.Sprintf("The phase changed from %s to %s.", from, to)
	case restarted:
		words.Kind, words.Title, words.Text = "restart", "Restarted", fmt.Sprintf("The job restarted after a failure; restarts: %s.", to)
	case rescheduled:
		words.Kind, words.Title = "reschedule", "Rescheduled"
		words.Text = fmt.Sprintf("The job restarted for another placement, size or queue; reschedules: %s.", to)
	case resized:
		words.Kind, words.Title, words.Text = "resize", "Resized", fmt.Sprintf("The desired replicas changed from %s to %s.", from, to)
	}
	return words
}
