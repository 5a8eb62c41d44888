// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
)

// none is the text for an empty value.
const none = "<none>"

// part is a part of the page.
type part struct {
	title string
	// of is what the part may need more rights for; "" for the job itself.
	of      string
	isShown bool
	rows    cli.Table
}

// parts returns the parts below the summary.
func (p *page) parts() []part {
	return append(p.facts(), []part{
		{title: "Tasks", isShown: true, rows: p.tasks()},
		{title: "Pods", of: partPods, isShown: true, rows: p.podTable()},
		{title: "Members, which the coordinator asked for", of: partMembers, isShown: p.view.Lifecycle == v2alpha1.LifecycleCoordinatorLed, rows: p.members()},
		{title: "Events", of: partEvents, isShown: p.showEvents, rows: p.eventTable()},
	}...)
}

// facts returns the parts that say what is wrong with the job, and what was decided about it.
func (p *page) facts() []part {
	return []part{
		{title: "What would let it run", isShown: p.view.Waiting != nil && len(p.view.Waiting.Remedies) > 0, rows: p.remedies()},
		{title: "Conditions", isShown: len(p.view.Conditions) > 0, rows: p.conditions()},
		{title: partAllocation, isShown: p.view.Preemptible, rows: p.allocation()},
		{title: partAutoscaling, isShown: p.Job.Spec.Autoscale != nil || p.Job.Status.Autoscaling != nil, rows: p.autoscaling()},
		{title: "Resources that differ from the templates", isShown: p.hasOverrides(), rows: p.overrides()},
		{title: "Plans", of: partPlans, isShown: p.hasPlans() || p.unread[partPlans] != "", rows: p.planTable()},
		{title: partFailure, isShown: p.view.Failure != nil, rows: p.lastFailure()},
		{title: "What would help", isShown: p.view.Failure != nil && len(p.view.Failure.Remedies) > 0, rows: p.helps()},
	}
}

// render returns the page as text.
func (p *page) render() []byte {
	p.view = jobview.Of(&p.Observed)
	var out bytes.Buffer
	summary := p.summary()
	summary.Write(&out, "")
	for _, part := range p.parts() {
		p.writePart(&out, &part)
		if part.of == partMembers && p.Members.List != nil && len(p.Members.List.Spec.RetainedPods) > 0 {
			fmt.Fprintf(&out, "  Retained pods, gone and still advertised: %d\n", len(p.Members.List.Spec.RetainedPods))
		}
	}
	return out.Bytes()
}

// coloured returns the page with a coloured phase.
func (p *page) coloured(palette cli.Palette) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(p.render()) {
		if bytes.HasPrefix(line, []byte("Phase: ")) {
			line = palette.At(len(line)-len(bytes.TrimLeft(line[len("Phase:"):], " ")), line)
		}
		out.Write(line)
	}
	return out.Bytes()
}

// writePart writes a part of the page, or the role that reading it requires.
func (p *page) writePart(out *bytes.Buffer, part *part) {
	if !part.isShown {
		return
	}
	fmt.Fprintf(out, "\n%s:\n", part.title)
	why, refused := p.unread[part.of]
	switch {
	case refused:
		fmt.Fprintln(out, "  not shown, as you may not read this: "+strings.ReplaceAll(why, "\n", "\n  "))
	case len(part.rows) == 0:
		fmt.Fprintln(out, "  "+none)
	default:
		part.rows.Write(out, "  ")
	}
}

// age returns how long ago a time was.
func (p *page) age(at *time.Time) string {
	if at == nil || at.IsZero() {
		return none
	}
	return replicas.Age(p.Now, *at)
}

// moment returns a time, and how long ago it was.
func (p *page) moment(at *time.Time) string {
	return at.UTC().Format(time.RFC3339) + ", " + p.age(at) + " ago"
}

func (p *page) summary() cli.Table {
	v, spec := p.view, &p.Job.Spec
	rows := cli.Table{{"Name:", v.Name}, {"Namespace:", v.Namespace}, {"Lifecycle:", string(v.Lifecycle)}, {"Phase:", p.phase()}}
	rows.Add("Reason:", v.Reason)
	if !v.IsFinished {
		rows.Add("Replicas:", fmt.Sprintf("%d of %d ready", v.Ready, v.Desired))
	}
	rows.Add("Created:", p.moment(&v.CreatedAt))
	rows.Add("Creator:", v.Creator)
	if v.CompletedAt != nil {
		rows.Add("Finished:", p.moment(v.CompletedAt))
	}
	rows.Add("Restarts:", p.restarts())
	rows.Add("Group:", v.Group)
	rows.Add("Priority:", v.Priority)
	if v.Preemptible {
		rows.Add("Preemptible:", "the allocator places it")
	}
	if elastic := names.ElasticTask(spec); elastic >= 0 && spec.Elastic != nil {
		rows.Add("Elastic:", fmt.Sprintf("task %s, %s", names.TaskName(&spec.Tasks[elastic]), bounds(spec.Elastic)))
	}
	if spec.ActiveDeadlineSeconds != nil {
		rows.Add("Deadline:", fmt.Sprintf("%ds of being active", *spec.ActiveDeadlineSeconds))
	}
	rows.Add("Queue:", p.queue.String())
	rows.Add("Managed by:", names.OtherManager(spec))
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(p.Job.Labels)) {
		labels = append(labels, key+"="+p.Job.Labels[key])
	}
	rows.Add("Labels:", strings.Join(labels, ", "))
	return rows
}

// phase returns the phase, with states that the phase does not show.
func (p *page) phase() string {
	job := p.Job
	notes := []string{string(p.view.Phase)}
	if job.Status.Phase == "" {
		notes = append(notes, "the operator has not observed the job yet")
	}
	if p.view.IsTerminating {
		notes = append(notes, "being deleted for "+p.age(&job.DeletionTimestamp.Time))
	}
	if p.view.IsSuspended {
		notes = append(notes, "suspended: kubectl di resume continues it")
	}
	// A deletion counts as a change of the object, and the operator leaves most jobs alone from then on.
	if job.Status.Phase != "" && job.Status.ObservedGeneration < job.Generation && job.DeletionTimestamp == nil {
		notes = append(notes, "the operator has not observed the last change of the spec")
	}
	return strings.Join(notes, ", ")
}

// restarts returns the restarts of the job, and their limit.
func (p *page) restarts() string {
	job, text := p.Job, strconv.Itoa(int(p.Job.Status.Restarts))
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		limit := ptr.Deref(job.Spec.BackoffLimit, 3)
		if text += ", without limit"; limit >= 0 {
			text = fmt.Sprintf("%d of at most %d", job.Status.Restarts, limit)
		}
	}
	if job.Status.Reschedules > 0 {
		text += fmt.Sprintf(", reschedules: %d", job.Status.Reschedules)
	}
	return text
}

// bounds returns the limits of the elastic task's number of replicas.
func bounds(elastic *v2alpha1.Elastic) string {
	switch {
	case elastic.MinReplicas != nil && elastic.MaxReplicas != nil:
		return fmt.Sprintf("%d to %s", *elastic.MinReplicas, english.Plural(int(*elastic.MaxReplicas), "replica", ""))
	case elastic.MinReplicas != nil:
		return english.Plural(int(*elastic.MinReplicas), "replica", "") + " or more"
	case elastic.MaxReplicas != nil:
		return "up to " + english.Plural(int(*elastic.MaxReplicas), "replica", "")
	}
	return "any number of replicas"
}

// remedies returns what would let the job run as desired.
func (p *page) remedies() cli.Table {
	var rows cli.Table
	if p.view.Waiting != nil {
		for _, text := range p.view.Waiting.Remedies {
			rows = append(rows, []string{text})
		}
	}
	return rows
}

// helps returns what would prevent the last failure.
func (p *page) helps() cli.Table {
	var rows cli.Table
	if p.view.Failure != nil {
		for _, text := range p.view.Failure.Remedies {
			rows = append(rows, []string{text})
		}
	}
	return rows
}

func (p *page) conditions() cli.Table {
	rows := cli.Table{{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for i := range p.view.Conditions {
		condition := &p.view.Conditions[i]
		rows = append(rows, []string{condition.Type, string(condition.Status), p.age(condition.Since), condition.Reason, condition.Message})
	}
	return rows
}

func (p *page) lastFailure() cli.Table {
	failure := p.view.Failure
	if failure == nil {
		return nil
	}
	rows := cli.Table{{"Pod:", cmp.Or(failure.Pod, none)}}
	if failure.ExitCode != nil {
		rows.Add("Exit code:", strconv.Itoa(int(*failure.ExitCode)))
	}
	rows.Add("Reason:", failure.Reason)
	rows.Add("Message:", failure.Message)
	if failure.At != nil {
		rows.Add("Seen:", p.moment(failure.At))
	}
	return rows
}

func (p *page) tasks() cli.Table {
	rows := cli.Table{{"TASK", "TYPE", "DESIRED", "PODS"}}
	for i := range p.view.Tasks {
		task := &p.view.Tasks[i]
		rows = append(rows, []string{task.Name, string(task.Type), task.DesiredText(), cmp.Or(replicas.Counts(task.Phases), none)})
	}
	return rows
}

func (p *page) podTable() cli.Table {
	if len(p.view.Pods) == 0 {
		return nil
	}
	rows := cli.Table{{"TASK", "POD", "STATUS", "RESTARTS", "EXIT CODE", "NODE", "AGE"}}
	for i := range p.view.Pods {
		pod := &p.view.Pods[i]
		restarts, status := strconv.Itoa(int(pod.Restarted)), pod.State
		if pod.Recreated > 0 {
			restarts += fmt.Sprintf(" (recreated: %d)", pod.Recreated)
		}
		if pod.Why != "" {
			status += ", " + pod.Why
		}
		rows = append(rows, []string{cmp.Or(pod.Role, none), pod.Pod, status, restarts, pod.ExitCode(), cmp.Or(pod.Node, none), p.age(pod.CreatedAt)})
	}
	return rows
}

func (p *page) members() cli.Table {
	list := p.Members.List
	if list == nil || len(list.Spec.Members) == 0 {
		return nil
	}
	rows := cli.Table{{"ROLE", "POD", "PHASE", "LOSSES", "FAILURE REPORTS", "REQUESTED"}}
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		lost := membership.Losses(&list.Status, member.Slot)
		name, phase := membership.PodName(p.Job.Name, member, lost), "not created yet"
		for i := range list.Status.Slots {
			if slot := &list.Status.Slots[i]; slot.Slot == member.Slot && slot.Phase != "" {
				phase = string(slot.Phase)
			}
		}
		if p.view.IsFinished {
			// The list is not kept up to date any more.
			phase = p.phaseOf(name)
		}
		rows = append(rows, []string{
			string(membership.Role(member)), name, phase,
			strconv.Itoa(int(lost)), strconv.Itoa(int(member.FailureReports)), requested(member),
		})
	}
	return rows
}

// phaseOf returns the phase of a pod that was listed, or that it is deleted.
func (p *page) phaseOf(name string) string {
	for _, pod := range p.Pods {
		if pod.Name == name {
			return string(podstate.Phase(pod))
		}
	}
	return "deleted"
}

// requested returns the request of a member if it differs from the template.
func requested(member *v2alpha1.Member) string {
	var text []string
	if member.Resources.CPUs != nil {
		text = append(text, "cpus="+member.Resources.CPUs.String())
	}
	if member.Resources.GPUs != nil {
		text = append(text, "gpus="+member.Resources.GPUs.String())
	}
	if member.Resources.Memory != nil {
		text = append(text, "memory="+member.Resources.Memory.String())
	}
	if membership.IsUnit(member) {
		text = append(text, fmt.Sprintf("DDP learners: %d", len(member.DDPGPUs)))
	}
	return cmp.Or(strings.Join(text, ", "), "the template's")
}

func (p *page) eventTable() cli.Table {
	if len(p.view.Events) == 0 {
		return cli.Table{{none + ", of those that the API server still keeps"}}
	}
	rows := cli.Table{{"TYPE", "REASON", "AGE", "OBJECT", "FROM", "MESSAGE"}}
	for i := range p.view.Events {
		event := &p.view.Events[i]
		age, about := p.age(&event.At), "job"
		if event.Count > 1 {
			age += fmt.Sprintf(" (x%d)", event.Count)
		}
		if event.Pod != "" {
			about = "pod " + event.Pod
		}
		rows = append(rows, []string{event.Type, event.Reason, age, about, event.From, event.Message})
	}
	return rows
}
