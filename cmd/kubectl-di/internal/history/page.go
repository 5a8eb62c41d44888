// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

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

// none is the text for an empty value.
const none = "<none>"

// page is what is recorded of a job, at a time.
type page struct {
	job job
	// spec is nil, and why says why, if the manifest cannot be read.
	spec *spec
	why  error
	now  time.Time
}

func newPage(of job, now time.Time) *page {
	p := &page{job: of, now: now}
	p.spec, p.why = specOf(of)
	return p
}

// part is a part of the page.
type part struct {
	title string
	rows  cli.Table
}

// render writes the page, with the parts in the order of kubectl di describe.
func (p *page) render(out *bytes.Buffer) {
	summary := p.summary()
	summary.Write(out, "")
	for _, part := range []part{
		{"Phases", p.phases()},
		{"Conditions", p.conditions()},
		{"Placements", p.placements()},
		{"Resizes", p.resizes()},
		{"Plans", p.plans()},
		{"Restarts", p.restarts()},
		{"Attempts", p.attempts()},
		{"Last failure", p.lastFailure()},
		{"Tasks", p.tasks()},
		{"Pods", p.pods()},
		{"Events", p.events()},
	} {
		if len(part.rows) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s:\n", part.title)
		part.rows.Write(out, "  ")
	}
	if p.why != nil {
		fmt.Fprintf(out, "\nThe spec is not shown: %s\n", printers.EscapeTerminal(p.why.Error()))
	}
}

// moment returns a time; none for zero.
func moment(at time.Time) string {
	if at.IsZero() {
		return none
	}
	return at.UTC().Format(time.RFC3339)
}

// ago returns a time and how long ago it was; "" for zero.
func (p *page) ago(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return moment(at) + ", " + replicas.Age(p.now, at) + " ago"
}

func (p *page) summary() cli.Table {
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
	rows.Add("Duration:", spanOf(j.Started, j.Ended, p.now))
	rows.Add("Restarts:", p.restartCount())
	rows.Add("Group:", j.Group)
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
func (p *page) phase() string {
	j := p.job
	text := cmp.Or(j.Phase, none)
	if j.Deleted {
		text += ", deleted before it finished"
	}
	if j.Unseen {
		text += ", ended unseen while nothing recorded it"
	}
	return text
}

func (p *page) restartCount() string {
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

func (p *page) phases() cli.Table {
	return tableOf([]string{"PHASE", "SINCE", "DURATION"}, p.job.Phases, func(i int, phase *record.Phase) []string {
		until := p.job.Ended
		if i+1 < len(p.job.Phases) {
			until = p.job.Phases[i+1].Since
		}
		took := spanOf(phase.Since, until, p.now)
		if !p.job.Ended.IsZero() && !phase.Since.Before(p.job.Ended) {
			took = "" // The last one does not end.
		}
		return []string{phase.Phase, moment(phase.Since), took}
	})
}

func (p *page) conditions() cli.Table {
	return tableOf([]string{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}, p.job.Conditions, func(_ int, c *record.Condition) []string {
		return []string{c.Type, c.Status, moment(c.At), c.Reason, c.Message}
	})
}

func (p *page) events() cli.Table {
	return tableOf([]string{"LAST", "COUNT", "TYPE", "OBJECT", "REASON", "MESSAGE"}, p.job.Events, func(_ int, e *record.Event) []string {
		return []string{moment(e.Last), strconv.Itoa(int(e.Count)), e.Type, e.Object, e.Reason, e.Message}
	})
}

func (p *page) placements() cli.Table {
	return tableOf([]string{"SINCE", "REPLICAS", "NODES"}, p.job.Placements, func(_ int, placement *record.Placement) []string {
		counts, nodes := map[string]int{}, []string{}
		for _, node := range placement.Nodes {
			counts[node]++
		}
		for _, node := range slices.Sorted(maps.Keys(counts)) {
			nodes = append(nodes, fmt.Sprintf("%s: %d", cmp.Or(node, none), counts[node]))
		}
		return []string{moment(placement.At), strconv.Itoa(len(placement.Nodes)), strings.Join(nodes, ", ")}
	})
}

func (p *page) resizes() cli.Table {
	return tableOf([]string{"AT", "TASK", "FROM", "TO", "ASKED BY"}, p.job.Resizes, func(_ int, r *record.Resize) []string {
		return []string{moment(r.At), r.Task, strconv.Itoa(int(r.From)), strconv.Itoa(int(r.To)), cmp.Or(r.By, none)}
	})
}

func (p *page) plans() cli.Table {
	header := []string{"CREATED", "PLAN", "PHASE", "ORIGIN", "CHANGE", "REASON", "MESSAGE"}
	return tableOf(header, p.job.Plans, func(_ int, plan *record.Plan) []string {
		var changes []string
		for _, task := range slices.Sorted(maps.Keys(plan.Replicas)) {
			changes = append(changes, fmt.Sprintf("%s=%d", task, plan.Replicas[task]))
		}
		return []string{
			moment(plan.Created), plan.Name, plan.Phase, plan.Origin, cmp.Or(strings.Join(changes, ", "), "-"), cmp.Or(plan.Reason, "-"),
			cmp.Or(plan.Message, "-"),
		}
	})
}

func (p *page) restarts() cli.Table {
	return tableOf([]string{"AT", "KIND", "REPLICA", "REASON", "MESSAGE"}, p.job.Restarts, func(_ int, r *record.Restart) []string {
		return []string{moment(r.At), r.Kind, cmp.Or(r.Replica, "all"), cmp.Or(r.Reason, none), r.Message}
	})
}

func (p *page) attempts() cli.Table {
	return tableOf([]string{"ATTEMPT", "STARTED", "DURATION", "ENDED BY", "MESSAGE"}, p.job.Attempts, func(_ int, a *record.Attempt) []string {
		ended := a.Ended
		if ended.IsZero() {
			ended = p.job.Ended
		}
		return []string{strconv.Itoa(int(a.Number)), moment(a.Started), spanOf(a.Started, ended, p.now), a.Reason, a.Message}
	})
}

// lastFailure shows the replica that ended badly last.
func (p *page) lastFailure() cli.Table {
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

func (p *page) tasks() cli.Table {
	tasks := tasksOf(p.job, p.spec)
	header := []string{"TASK", "TYPE", "REPLICAS", "REQUESTS", "USED AT MOST", "KILLED AT"}
	return tableOf(header, tasks, func(_ int, t *task) []string {
		return []string{t.Name, t.kind, t.Replicas, t.requestText(), t.peakText(), t.killedText()}
	})
}

func (p *page) pods() cli.Table {
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
			cmp.Or(r.Task, none), r.Pod, strconv.Itoa(int(r.Attempt)), cmp.Or(r.Phase, none), strconv.Itoa(int(r.Restarts)), exitCode(r.ExitCode, r.Reason),
			cmp.Or(r.Node, none), moment(r.Ended), spanOf(r.Started, ended, p.now), r.Message,
		}
	})
}

// exitCode returns how a container ended, such as 137 (OOMKilled).
func exitCode(code *int32, reason string) string {
	text := "-"
	if code != nil {
		text = strconv.Itoa(int(*code))
	}
	if reason != "" && reason != "Completed" && reason != "Error" {
		text += " (" + reason + ")"
	}
	return text
}
