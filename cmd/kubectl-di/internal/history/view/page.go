// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view shows recorded jobs: one on a page, as kubectl di describe shows a living one, and several side by side.
package view

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/cli-runtime/pkg/printers"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/history/record"
)

// None is the text for an empty value.
const None = "<none>"

// Page is what is recorded of a job, at a time.
type Page struct {
	job *record.Job
	// spec is nil, and why says why, if the manifest cannot be read.
	spec *spec
	why  error
	now  time.Time
}

// Of returns the page of a job.
func Of(job *record.Job, now time.Time) *Page {
	p := &Page{job: job, now: now}
	p.spec, p.why = specOf(job)
	return p
}

// Part is a part of the page.
type Part struct {
	Title string
	Rows  cli.Table
	// HasHeader is set if the first row names the columns. Otherwise each row is a title and a text.
	HasHeader bool
}

// Parts returns the parts that are not empty, in the order of kubectl di describe.
func (p *Page) Parts() []Part {
	all := []Part{
		{"Phases", p.phases(), true},
		{"Conditions", p.conditions(), true},
		{"Placements", p.placements(), true},
		{"Resizes", p.resizes(), true},
		{"Plans", p.plans(), true},
		{"Restarts", p.restarts(), true},
		{"Attempts", p.attempts(), true},
		{"Last failure", p.lastFailure(), false},
		{"Tasks", p.tasks(), true},
		{"Pods", p.pods(), true},
		{"Events", p.events(), true},
	}
	return slices.DeleteFunc(all, func(one Part) bool { return len(one.Rows) == 0 })
}

// Lacks says why the spec is not shown; "" if it is.
func (p *Page) Lacks() string {
	if p.why == nil {
		return ""
	}
	return "The spec is not shown: " + p.why.Error()
}

// Render writes the page.
func (p *Page) Render(out *bytes.Buffer) {
	summary := p.Summary()
	summary.Write(out, "")
	for _, part := range p.Parts() {
		fmt.Fprintf(out, "\n%s:\n", part.Title)
		part.Rows.Write(out, "  ")
	}
	if lacks := p.Lacks(); lacks != "" {
		fmt.Fprintf(out, "\n%s\n", printers.EscapeTerminal(lacks))
	}
}

// Moment returns a time; none for zero.
func Moment(at time.Time) string {
	if at.IsZero() {
		return None
	}
	return at.UTC().Format(time.RFC3339)
}

// ago returns a time and how long ago it was; "" for zero.
func (p *Page) ago(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return Moment(at) + ", " + replicas.Age(p.now, at) + " ago"
}

// Summary returns rows of a title and a text.
func (p *Page) Summary() cli.Table {
	j := p.job
	rows := cli.Table{{"Name:", j.Name}, {"Namespace:", j.Namespace}}
	if p.spec != nil {
		rows.Add("Lifecycle:", p.spec.lifecycle)
	}
	rows.Add("Phase:", p.phase())
	rows.Add("Reason:", j.Reason)
	rows.Add("Message:", j.Message)
	rows.Add("Created:", p.ago(j.Created))
	rows.Add("Creator:", j.Creator)
	rows.Add("Started:", p.ago(j.Started))
	rows.Add("Finished:", p.ago(j.Ended))
	rows.Add("Duration:", SpanOf(j.Started, j.Ended, p.now))
	rows.Add("Restarts:", p.restartCount())
	rows.Add("Group:", j.Group)
	rows.Add("Queue:", j.Queue)
	if p.spec != nil {
		rows.Add("Priority:", p.spec.priority)
		rows.Add("Labels:", p.spec.labels)
	}
	rows.Add("Images:", strings.Join(j.Images, ", "))
	rows.Add("UID:", j.UID)
	rows.Add("Written in:", j.Version)
	var dropped []string
	for _, list := range slices.Sorted(maps.Keys(j.Dropped)) {
		dropped = append(dropped, fmt.Sprintf("%s: %d", list, j.Dropped[list]))
	}
	rows.Add("Not recorded:", strings.Join(dropped, ", "))
	return rows
}

// phase returns the last phase, and how the job ended without finishing.
func (p *Page) phase() string {
	j := p.job
	text := cmp.Or(j.Phase, None)
	if j.Deleted {
		text += ", deleted before it finished"
	}
	if j.Unseen {
		text += ", ended unseen while nothing recorded it"
	}
	return text
}

func (p *Page) restartCount() string {
	text := strconv.Itoa(int(p.job.Seen.Restarts))
	if p.job.Seen.Reschedules > 0 {
		text += fmt.Sprintf(", reschedules: %d", p.job.Seen.Reschedules)
	}
	return text
}

// tableOf returns a row for each entry of a list, below a header; none for an empty list.
func tableOf[T any](header []string, all []T, row func(i int, one *T) []string) cli.Table {
	if len(all) == 0 {
		return nil
	}
	rows := cli.Table{header}
	for i := range all {
		rows = append(rows, row(i, &all[i]))
	}
	return rows
}

func (p *Page) phases() cli.Table {
	return tableOf([]string{"PHASE", "SINCE", "DURATION"}, p.job.Phases, func(i int, phase *record.Phase) []string {
		until := p.job.Ended
		if i+1 < len(p.job.Phases) {
			until = p.job.Phases[i+1].Since
		}
		took := SpanOf(phase.Since, until, p.now)
		if !p.job.Ended.IsZero() && !phase.Since.Before(p.job.Ended) {
			took = "" // The last one does not end.
		}
		return []string{phase.Phase, Moment(phase.Since), took}
	})
}

func (p *Page) conditions() cli.Table {
	return tableOf([]string{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}, p.job.Conditions, func(_ int, c *record.Condition) []string {
		return []string{c.Type, c.Status, Moment(c.At), c.Reason, c.Message}
	})
}

func (p *Page) events() cli.Table {
	return tableOf([]string{"LAST", "COUNT", "TYPE", "OBJECT", "REASON", "MESSAGE"}, p.job.Events, func(_ int, e *record.Event) []string {
		return []string{Moment(e.Last), strconv.Itoa(int(e.Count)), e.Type, e.Object, e.Reason, e.Message}
	})
}

func (p *Page) placements() cli.Table {
	return tableOf([]string{"SINCE", "REPLICAS", "NODES"}, p.job.Placements, func(_ int, placement *record.Placement) []string {
		counts, nodes := map[string]int{}, []string{}
		for _, node := range placement.Nodes {
			counts[node]++
		}
		for _, node := range slices.Sorted(maps.Keys(counts)) {
			nodes = append(nodes, fmt.Sprintf("%s: %d", cmp.Or(node, None), counts[node]))
		}
		return []string{Moment(placement.At), strconv.Itoa(len(placement.Nodes)), strings.Join(nodes, ", ")}
	})
}

func (p *Page) resizes() cli.Table {
	return tableOf([]string{"AT", "TASK", "FROM", "TO", "ASKED BY"}, p.job.Resizes, func(_ int, r *record.Resize) []string {
		return []string{Moment(r.At), r.Task, strconv.Itoa(int(r.From)), strconv.Itoa(int(r.To)), cmp.Or(r.By, None)}
	})
}

func (p *Page) plans() cli.Table {
	header := []string{"CREATED", "PLAN", "PHASE", "ORIGIN", "CHANGE", "REASON", "MESSAGE"}
	return tableOf(header, p.job.Plans, func(_ int, plan *record.Plan) []string {
		var changes []string
		for _, task := range slices.Sorted(maps.Keys(plan.Replicas)) {
			changes = append(changes, fmt.Sprintf("%s=%d", task, plan.Replicas[task]))
		}
		return []string{
			Moment(plan.Created), plan.Name, plan.Phase, plan.Origin, cmp.Or(strings.Join(changes, ", "), "-"), cmp.Or(plan.Reason, "-"),
			cmp.Or(plan.Message, "-"),
		}
	})
}

func (p *Page) restarts() cli.Table {
	return tableOf([]string{"AT", "KIND", "REPLICA", "REASON", "MESSAGE"}, p.job.Restarts, func(_ int, r *record.Restart) []string {
		return []string{Moment(r.At), r.Kind, cmp.Or(r.Replica, "all"), cmp.Or(r.Reason, None), r.Message}
	})
}

func (p *Page) attempts() cli.Table {
	return tableOf([]string{"ATTEMPT", "STARTED", "DURATION", "ENDED BY", "MESSAGE"}, p.job.Attempts, func(_ int, a *record.Attempt) []string {
		ended := a.Ended
		if ended.IsZero() {
			ended = p.job.Ended
		}
		return []string{strconv.Itoa(int(a.Number)), Moment(a.Started), SpanOf(a.Started, ended, p.now), a.Reason, a.Message}
	})
}

// lastFailure shows the replica that ended badly last.
func (p *Page) lastFailure() cli.Table {
	var last *record.Replica
	for i := range p.job.Replicas {
		one := &p.job.Replicas[i]
		if one.ExitCode != nil && *one.ExitCode != 0 && (last == nil || last.Ended.Before(one.Ended)) {
			last = one
		}
	}
	if last == nil {
		return nil
	}
	rows := cli.Table{{"Pod:", last.Pod}, {"Exit code:", strconv.Itoa(int(*last.ExitCode))}}
	rows.Add("Reason:", last.Reason)
	rows.Add("Message:", last.Message)
	rows.Add("Seen:", p.ago(last.Ended))
	return rows
}

func (p *Page) tasks() cli.Table {
	tasks := tasksOf(p.job, p.spec)
	header := []string{"TASK", "TYPE", "REPLICAS", "REQUESTS", "USED AT MOST", "KILLED AT"}
	return tableOf(header, tasks, func(_ int, t *Task) []string {
		return []string{t.Name, t.kind, t.Replicas, t.RequestText(), t.PeakText(), t.KilledText()}
	})
}

func (p *Page) pods() cli.Table {
	pods := slices.Clone(p.job.Replicas)
	slices.SortStableFunc(pods, func(a, b record.Replica) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Index, b.Index), a.Created.Compare(b.Created))
	})
	header := []string{"TASK", "POD", "ATTEMPT", "STATUS", "RESTARTS", "EXIT CODE", "NODE", "ENDED", "DURATION", "MESSAGE"}
	return tableOf(header, pods, func(_ int, r *record.Replica) []string {
		ended := r.Ended
		if ended.IsZero() {
			ended = p.job.Ended
		}
		return []string{
			cmp.Or(r.Task, None), r.Pod, strconv.Itoa(int(r.Attempt)), cmp.Or(r.Phase, None), strconv.Itoa(int(r.Restarts)), ExitCode(r.ExitCode, r.Reason),
			cmp.Or(r.Node, None), Moment(r.Ended), SpanOf(r.Started, ended, p.now), r.Message,
		}
	})
}

// ExitCode returns how a container ended, such as 137 (OOMKilled).
func ExitCode(code *int32, reason string) string {
	text := "-"
	if code != nil {
		text = strconv.Itoa(int(*code))
	}
	if reason != "" && reason != "Completed" && reason != "Error" {
		text += " (" + reason + ")"
	}
	return text
}
