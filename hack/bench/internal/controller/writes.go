// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// otherWrites is how many requests a job may take until it runs, beside its
	// pods, its service, Events and patches of counts.
	otherWrites = 4
	// countPause is the least time between two patches of a job's counts.
	countPause = time.Second
	// idleTime is how long nothing may be read when nothing happens.
	idleTime = 5 * time.Second
)

// spending is what was asked for one job until it runs.
type spending struct {
	pods, services, others, counts, events int
	// patched are when its counts were patched.
	patched []time.Time
}

// writesRow is one row: a shape, and how fast its pods become ready.
type writesRow struct {
	shape shape
	pause time.Duration
	name  string
}

const writesNotes = `
Requests per job: mean and, in parentheses, most. Others are all writes but creations of pods and services, Events, and
patches of the status that change nothing but counts (readyReplicas, taskStatus, elasticReplicas); the limit is %d of them. Creations
are requests, so that one of what exists already counts, too. The plain client makes the same objects by one request each.
Reads are the operator's GETs and LISTs from the submission until %s after all jobs run; there must be none.
`

// runWrites counts the requests for each job until it runs.
func (b *bench) runWrites(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	if err := w.startOperator(ctx); err != nil {
		return nil, err
	}
	if err := w.warmUp(ctx); err != nil {
		return nil, err
	}
	table := b.Table(tabwriter.AlignRight)
	fmt.Fprintln(table, "jobs x pods, ready\twho\tpods\tservices\tothers\tcount patches\tleast apart\tEvents\treads\t")
	var asked []string
	for _, row := range []writesRow{
		{shape{20, 20}, 0, "at once"},
		{shape{2, 100}, harness.Writers * 50 * time.Millisecond, "20/s"},
	} {
		requests, err := w.countWrites(ctx, table, &missed, row)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", row.shape, err)
		}
		asked = append(asked, fmt.Sprintf("%s, ready %s: %s", row.shape, row.name, requests))
	}
	err = table.Flush()
	fmt.Fprintf(b.Out, writesNotes, otherWrites, idleTime)
	fmt.Fprintln(b.Out, "\nAll requests of the operator:")
	for _, line := range asked {
		fmt.Fprintln(b.Out, "  "+line)
	}
	return missed, err
}

func (w *world) countWrites(ctx context.Context, table *tabwriter.Writer, missed *figures.Limits, row writesRow) (controlplane.Requests, error) {
	mark, err := w.WaitQuiet(ctx, time.Second)
	if err != nil {
		return nil, err
	}
	w.Say("%s, ready %s", row.shape, row.name)
	w.kubelet.SetPause(row.pause)
	jobs := jobsOf(oursNamespace, "write", row.shape.jobs, row.shape.pods)
	if err := w.submitAll(ctx, jobs, nil); err != nil {
		return nil, err
	}
	if err := w.waitRunning(ctx, oursNamespace, len(jobs), len(jobs)*row.shape.pods); err != nil {
		return nil, err
	}
	w.kubelet.SetPause(0)
	if err := pace.Pause(ctx, idleTime); err != nil {
		return nil, err
	}
	spent, asked, err := w.spendingSince(mark)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(table, "%s, %s\toperator\t%s\t%d\t\n", row.shape, row.name, sumUp(spent), asked.Total("get", "list"))
	requireSpending(missed, row, spent)
	missed.Require(asked.Total("get", "list") == 0, "%s, ready %s: the operator read: %s", row.shape, row.name, asked)
	fmt.Fprintf(table, "%s, %s\tplain client\t%d\t1\t-\t-\t-\t-\t-\t\n", row.shape, row.name, row.shape.pods)
	return asked, w.clear(ctx)
}

// requireSpending notes how many jobs of a row spent too much.
func requireSpending(missed *figures.Limits, row writesRow, spent map[string]*spending) {
	var others, again, hasty int
	for _, one := range spent {
		if one.others > otherWrites {
			others++
		}
		if one.pods > row.shape.pods || one.services > 1 {
			again++
		}
		if apart, patched := leastApart(one.patched); patched && apart < countPause {
			hasty++
		}
	}
	missed.Require(others == 0, "%s, ready %s: %d jobs took more than %d other writes", row.shape, row.name, others, otherWrites)
	missed.Require(again == 0, "%s, ready %s: for %d jobs was created what existed already", row.shape, row.name, again)
	missed.Require(hasty == 0, "%s, ready %s: the counts of %d jobs were patched less than %s apart", row.shape, row.name, hasty, countPause)
}

// spendingSince reads from the audit log what the operator asked for each job.
func (w *world) spendingSince(mark controlplane.Mark) (map[string]*spending, controlplane.Requests, error) {
	spent, asked := map[string]*spending{}, controlplane.Requests{}
	jobs := map[string]bool{}
	err := w.Events(mark, func(event *controlplane.Event) error {
		if event.User.Username == harness.UserOperator {
			asked[event.What()]++
		}
		if event.User.Username == userSubmitter && event.ObjectRef.Resource == "dijobs" {
			jobs[event.ObjectRef.Name] = true
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = w.Events(mark, func(event *controlplane.Event) error {
		job := jobOf(jobs, event.ObjectRef.Name)
		if event.User.Username != harness.UserOperator || job == "" {
			return nil
		}
		if spent[job] == nil {
			spent[job] = &spending{}
		}
		return spent[job].add(event)
	})
	return spent, asked, err
}

// jobOf returns the job that an object is of, by its name.
func jobOf(jobs map[string]bool, object string) string {
	// The name of a job has two parts here.
	name := strings.TrimPrefix(object, "di-")
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '.' })
	if len(parts) < 2 || !jobs[parts[0]+"-"+parts[1]] {
		return ""
	}
	return parts[0] + "-" + parts[1]
}

// add counts one request.
func (s *spending) add(event *controlplane.Event) error {
	switch what := event.What(); what {
	case "create pods":
		s.pods++
	case "create services":
		s.services++
	case "create events", "patch events", "update events":
		s.events++
	case "patch dijobs/status":
		only, err := changesOnlyCounts(event.RequestObject)
		if err != nil {
			return err
		}
		if only {
			s.counts++
			s.patched = append(s.patched, event.Received.Time)
			return nil
		}
		s.others++
	default:
		if event.Verb != "get" && event.Verb != "list" && event.Verb != "watch" {
			s.others++
		}
	}
	return nil
}

// changesOnlyCounts reports whether a patch of a status changes nothing but counts.
func changesOnlyCounts(patch []byte) (bool, error) {
	var sent struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(patch, &sent); err != nil {
		return false, fmt.Errorf("reading a patch of the audit log: %w", err)
	}
	for field := range sent.Status {
		if !slices.Contains([]string{"readyReplicas", "taskStatus", "elasticReplicas"}, field) {
			return false, nil
		}
	}
	return len(sent.Status) > 0, nil
}

// leastApart returns the least time between two of several times.
func leastApart(times []time.Time) (least time.Duration, any bool) {
	sorted := slices.SortedFunc(slices.Values(times), time.Time.Compare)
	for i := 1; i < len(sorted); i++ {
		if apart := sorted[i].Sub(sorted[i-1]); !any || apart < least {
			least, any = apart, true
		}
	}
	return least, any
}

// sumUp shows mean and most of what jobs took.
func sumUp(spent map[string]*spending) string {
	all := slices.Collect(maps.Values(spent))
	column := func(of func(*spending) int) string {
		sum, most := 0, 0
		for _, one := range all {
			sum += of(one)
			most = max(most, of(one))
		}
		return fmt.Sprintf("%.1f (%d)", float64(sum)/float64(max(len(all), 1)), most)
	}
	least, found := time.Duration(0), false
	for _, one := range all {
		if apart, any := leastApart(one.patched); any && (!found || apart < least) {
			least, found = apart, true
		}
	}
	apart := "-"
	if found {
		apart = figures.Millis(least)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s",
		column(func(s *spending) int { return s.pods }), column(func(s *spending) int { return s.services }),
		column(func(s *spending) int { return s.others }), column(func(s *spending) int { return s.counts }), apart,
		column(func(s *spending) int { return s.events }))
}
