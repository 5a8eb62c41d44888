// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/printing"
)

// formatName is a form of the output beside those of all data.
const formatName = "name"

// wide is the width of what is no terminal.
const wide = 1 << 16

// print prints a snapshot as -o says, as text where it says nothing.
func print(out io.Writer, s *Snapshot, history *history, output *printing.Data, now time.Time) error {
	switch {
	case output.Form() == formatName:
		_, err := fmt.Fprintf(out, "dijob.%s/%s\n", v2alpha1.GroupName, s.Name)
		return err
	case !output.IsText():
		return output.Print(out, s)
	}
	_, err := io.WriteString(out, text(s, history, now))
	return err
}

// text draws a snapshot without a terminal.
func text(s *Snapshot, history *history, now time.Time) string {
	var out strings.Builder
	end := now
	if s.CompletedAt != nil {
		end = *s.CompletedAt
	}
	fact := func(name, value string) { fmt.Fprintf(&out, "%-12s %s\n", name+":", clean(value)) }
	fact("Job", s.Namespace+"/"+s.Name)
	fact("Phase", string(s.Phase))
	fact("Lifecycle", string(s.Lifecycle))
	fact("Age", age(end, s.CreatedAt))
	fact("Ready", fmt.Sprintf("%d/%d", s.Ready, s.Wanted))
	fact("Restarts", strconv.Itoa(int(s.Restarts)))
	if s.Reschedules > 0 {
		fact("Reschedules", strconv.Itoa(int(s.Reschedules)))
	}
	for _, condition := range s.Conditions {
		fact("Condition", fmt.Sprintf("%s %s: %s", condition.Type, condition.Reason, condition.Message))
	}
	fact("Tasks", counts(s.Tasks))
	fact("Nodes", counts(s.Nodes))
	if s.Preemptible {
		fact("Placed", allocation(s.Allocation))
	}
	for _, name := range history.names() {
		series := history.series[name]
		fact("Reported", name+" "+number(series[len(series)-1]))
	}
	for _, lack := range s.Lacks {
		fact("Not shown", lack)
	}
	m := &model{snapshot: *s, now: now}
	for _, p := range []pane{paneReplicas, paneEvents} {
		m.pane = p
		if list := m.table(); list.count > 0 {
			header, body := list.lines(wide, 0, list.count)
			out.WriteString("\n" + header + "\n" + strings.Join(body, "\n") + "\n")
		}
	}
	return out.String()
}

// brief says how a job is on one line.
func brief(s *Snapshot, history *history) string {
	facts := []string{
		"phase=" + string(s.Phase), fmt.Sprintf("ready=%d/%d", s.Ready, s.Wanted),
		fmt.Sprintf("restarts=%d", s.Restarts), fmt.Sprintf("reschedules=%d", s.Reschedules),
	}
	for _, task := range s.Tasks {
		facts = append(facts, fmt.Sprintf("%s=%d/%d", task.Name, task.Ready, task.Wanted))
	}
	for _, condition := range s.Conditions {
		facts = append(facts, "condition="+condition.Type)
	}
	for _, name := range history.names() {
		series := history.series[name]
		facts = append(facts, clean(name)+"="+number(series[len(series)-1]))
	}
	return strings.Join(facts, " ")
}
