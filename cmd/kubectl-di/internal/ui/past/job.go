// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/history/record"
)

const (
	// mostRows bounds the rows of a table.
	mostRows = 1_000
	// mostMoments bounds the timeline.
	mostMoments = 1_000
)

// Row returns a job of a list.
func Row(of *record.Summary) api.HistoryRow {
	return api.HistoryRow{
		Namespace: of.Namespace, Name: of.Name, UID: of.UID, Phase: view.PhaseOf(of.Phase, of.Ended, of.Unseen), Reason: of.Reason, Message: of.Message,
		Group: of.Group, User: of.Creator, Restarts: of.Restarts, CreatedAt: of.Created, StartedAt: timeOf(of.Started), EndedAt: timeOf(of.Ended),
	}
}

// Page returns a part of a list.
func Page(of *record.Page) api.HistoryPage {
	page := api.HistoryPage{Items: make([]api.HistoryRow, 0, len(of.Jobs)), Next: of.Next}
	for i := range of.Jobs {
		page.Items = append(page.Items, Row(&of.Jobs[i]))
	}
	return page
}

func timeOf(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// rowOf returns a job as a row.
func rowOf(of *record.Job) api.HistoryRow {
	return Row(&record.Summary{
		UID: of.UID, Namespace: of.Namespace, Name: of.Name, Group: of.Group, Creator: of.Creator, Phase: of.Phase, Reason: of.Reason, Message: of.Message,
		Created: of.Created, Started: of.Started, Ended: of.Ended, Unseen: of.Unseen, Restarts: of.RestartCount(),
	})
}

// Job returns all that is recorded of a job.
func Job(of *record.Job, now time.Time) *api.HistoryJob {
	shown := view.Of(of, now)
	job := &api.HistoryJob{
		Job: rowOf(of), Facts: []api.Fact{}, Parts: []api.HistoryPart{}, Timeline: timeline(of), Notes: []string{}, Cost: cost.OfRecord(of, now).IfAny(),
	}
	for _, fact := range shown.Summary() {
		job.Facts = append(job.Facts, api.Fact{Part: "Summary", Title: strings.TrimSuffix(fact[0], ":"), Text: fact[1]})
	}
	for _, part := range shown.Parts() {
		addPart(job, part)
	}
	if lacks := shown.Lacks(); lacks != "" {
		job.Notes = append(job.Notes, lacks)
	}
	return job
}

func addPart(job *api.HistoryJob, part view.Part) {
	if !part.HasHeader {
		for _, fact := range part.Rows {
			job.Facts = append(job.Facts, api.Fact{Part: part.Title, Title: strings.TrimSuffix(fact[0], ":"), Text: fact[1]})
		}
		return
	}
	made := api.HistoryPart{Title: part.Title, Columns: []string{}, Rows: part.Rows[1:]}
	for _, title := range part.Rows[0] {
		made.Columns = append(made.Columns, title[:1]+strings.ToLower(title[1:]))
	}
	if made.More = max(0, len(made.Rows)-mostRows); made.More > 0 {
		made.Rows = made.Rows[made.More:]
	}
	job.Parts = append(job.Parts, made)
}

// timeline returns what happened to a job, the oldest first.
func timeline(of *record.Job) []api.Moment {
	all := []api.Moment{{At: of.Created, Kind: "event", Title: "Created", Text: "The job was created."}}
	all = append(all, phases(of)...)
	for i := range of.Restarts {
		all = append(all, restart(&of.Restarts[i]))
	}
	for i := range of.Resizes {
		one := &of.Resizes[i]
		text := fmt.Sprintf("The desired replicas of task %s changed from %d to %d, asked by %s.", one.Task, one.From, one.To, cmp.Or(one.By, view.None))
		all = append(all, api.Moment{At: one.At, Kind: "resize", Title: "Resized", Text: text})
	}
	for i := range of.Replicas {
		one := &of.Replicas[i]
		if one.ExitCode == nil || *one.ExitCode == 0 || one.Ended.IsZero() {
			continue
		}
		text := fmt.Sprintf("Pod %s failed with exit code %d: %s", one.Pod, *one.ExitCode, one.Message)
		all = append(all, api.Moment{
			At: one.Ended, Kind: "failure", Title: one.Reason, Text: text, Object: replicas.Name(of.Name, one.Pod), Warning: true,
		})
	}
	for i := range of.Plans {
		one := &of.Plans[i]
		all = append(all, api.Moment{At: one.Created, End: timeOf(one.Ended), Kind: "plan", Title: one.Name, Text: cmp.Or(one.Message, one.Reason, one.Phase)})
	}
	for i := range of.Events {
		one := &of.Events[i]
		all = append(all, api.Moment{
			At: one.Last, Kind: "event", Title: one.Reason, Text: one.Message, Object: one.Object, Warning: one.Type == "Warning", Count: one.Count,
		})
	}
	slices.SortStableFunc(all, func(a, b api.Moment) int { return a.At.Compare(b.At) })
	return all[max(0, len(all)-mostMoments):]
}

func phases(of *record.Job) []api.Moment {
	var all []api.Moment
	before := ""
	for i, phase := range of.Phases {
		one := api.Moment{At: phase.Since, Kind: "phase", Title: phase.Phase, Text: fmt.Sprintf("The phase changed from %s to %s.", before, phase.Phase)}
		if before == "" {
			one.Text = fmt.Sprintf("The phase was %s.", phase.Phase)
		}
		if i+1 < len(of.Phases) {
			one.End = &of.Phases[i+1].Since
		}
		all, before = append(all, one), phase.Phase
	}
	return all
}

func restart(of *record.Restart) api.Moment {
	one := api.Moment{At: of.At, Kind: "restart", Title: cmp.Or(of.Reason, "Restarted"), Text: of.Message, Object: of.Replica, Warning: true}
	if of.Kind == record.RestartElsewhere {
		one.Kind, one.Warning = "reschedule", false
	}
	return one
}

// Tails returns the last lines of containers.
func Tails(job string, of []record.Tail) api.HistoryTails {
	all := api.HistoryTails{Tails: []api.HistoryTail{}}
	for i := range of {
		one := &of[i]
		all.Tails = append(all.Tails, api.HistoryTail{
			Replica: replicas.Name(job, one.Pod), Container: one.Container, Restarts: one.Restarts, EndedAt: one.Ended, ExitCode: one.ExitCode,
			Reason: one.Reason, Text: one.Text, Truncated: one.Truncated,
		})
	}
	return all
}
