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
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/remedy"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// none is the text for an empty value.
const none = "<none>"

// table contains the rows of a part of the page.
type table [][]string

// add adds a row with a title, unless its text is empty.
func (t *table) add(title, text string) {
	if text != "" {
		*t = append(*t, []string{title, text})
	}
}

// write writes the rows in columns with an indent. The text of a title may have several lines, below each other;
// other cells have one. None has control sequences.
func (t *table) write(out *bytes.Buffer, indent string) {
	aligned := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range *t {
		last := len(row) - 1
		for i, cell := range row[:last] {
			row[i] = printers.EscapeTerminal(oneLine(cell))
		}
		lines := []string{oneLine(row[last])}
		if last == 1 {
			lines = linesOf(row[last])
		}
		for i, line := range lines {
			if i > 0 {
				clear(row[:last])
			}
			row[last] = printers.EscapeTerminal(line)
			fmt.Fprintln(aligned, indent+strings.TrimRight(strings.Join(row, "\t"), "\t"))
		}
	}
	_ = aligned.Flush() // A buffer returns no error.
}

// linesOf returns the lines of a text that are not empty, at least one. They keep their indents, without tabs.
func linesOf(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", "\n"), "\n") {
		if line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " "); line != "" {
			lines = append(lines, line)
		}
	}
	switch len(lines) {
	case 0:
		return []string{""}
	case 1:
		return []string{oneLine(lines[0])}
	}
	return lines
}

// render returns the page as text.
func (p *page) render() []byte {
	var out bytes.Buffer
	summary := p.summary()
	summary.write(&out, "")
	p.writePart(&out, "What would let it run:", "", len(p.remedies()) > 0, p.remedies)
	p.writePart(&out, "Conditions:", "", len(p.job.Status.Conditions) > 0, p.conditions)
	p.writePart(&out, "Allocation:", "", p.job.Spec.Preemptible, p.allocation)
	p.writePart(&out, "Autoscaling:", "", p.isAutoscaled(), p.autoscaling)
	p.writePart(&out, "Resources that differ from the templates:", "", p.hasOverrides(), p.overrides)
	p.writePart(&out, "Plans:", partPlans, p.hasPlans() || p.unread[partPlans] != "", p.planTable)
	p.writePart(&out, "Last failure:", "", p.job.Status.LastFailure != nil, p.lastFailure)
	p.writePart(&out, "Tasks:", "", true, p.tasks)
	p.writePart(&out, "Pods:", partPods, true, p.podTable)
	p.writePart(&out, "Members, which the coordinator asked for:", partMembers, p.job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed,
		p.members)
	if p.membership != nil && len(p.membership.Spec.RetainedPods) > 0 {
		fmt.Fprintf(&out, "  Retained pods, gone and still advertised: %d\n", len(p.membership.Spec.RetainedPods))
	}
	p.writePart(&out, "Events:", partEvents, p.showEvents, p.eventTable)
	return out.Bytes()
}

// writePart writes a part of the page, or the role that reading it requires.
func (p *page) writePart(out *bytes.Buffer, title, part string, isShown bool, rows func() table) {
	if !isShown {
		return
	}
	fmt.Fprintln(out, "\n"+title)
	if why, refused := p.unread[part]; refused {
		fmt.Fprintln(out, "  not shown, as you may not read this: "+strings.ReplaceAll(why, "\n", "\n  "))
		return
	}
	if written := rows(); len(written) > 0 {
		written.write(out, "  ")
		return
	}
	fmt.Fprintln(out, "  "+none)
}

// age returns how long ago a time was.
func (p *page) age(at *metav1.Time) string {
	if at.IsZero() {
		return none
	}
	return replicas.Age(p.now, at.Time)
}

// moment returns a time, and how long ago it was.
func (p *page) moment(at *metav1.Time) string {
	return at.UTC().Format(time.RFC3339) + ", " + p.age(at) + " ago"
}

func (p *page) summary() table {
	job, spec, status := p.job, &p.job.Spec, &p.job.Status
	rows := table{
		{"Name:", job.Name},
		{"Namespace:", job.Namespace},
		{"Lifecycle:", string(cmp.Or(spec.Lifecycle, v2alpha1.LifecycleWorkerLed))},
		{"Phase:", p.phase()},
	}
	rows.add("Reason:", replicas.Reason(job))
	if !replicas.IsFinished(job) {
		ready, desired := replicas.Ready(job)
		rows.add("Replicas:", fmt.Sprintf("%d of %d ready", ready, desired))
	}
	rows.add("Created:", p.moment(&job.CreationTimestamp))
	if status.CompletionTimestamp != nil {
		rows.add("Finished:", p.moment(status.CompletionTimestamp))
	}
	rows.add("Restarts:", p.restarts())
	rows.add("Group:", spec.Group)
	rows.add("Priority:", cmp.Or(spec.PriorityClassName, string(spec.Priority)))
	if spec.Preemptible {
		rows.add("Preemptible:", "the allocator places it")
	}
	if elastic := names.ElasticTask(spec); elastic >= 0 && spec.Elastic != nil {
		rows.add("Elastic:", fmt.Sprintf("task %s, %s", names.TaskName(&spec.Tasks[elastic]), bounds(spec.Elastic)))
	}
	if spec.ActiveDeadlineSeconds != nil {
		rows.add("Deadline:", fmt.Sprintf("%ds of being active", *spec.ActiveDeadlineSeconds))
	}
	rows.add("Queue:", p.queue.String())
	rows.add("Managed by:", names.OtherManager(spec))
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(job.Labels)) {
		labels = append(labels, key+"="+job.Labels[key])
	}
	rows.add("Labels:", strings.Join(labels, ", "))
	return rows
}

// phase returns the phase, with states that the phase does not show.
func (p *page) phase() string {
	job := p.job
	notes := []string{string(replicas.Phase(job))}
	if job.Status.Phase == "" {
		notes = append(notes, "the operator has not observed the job yet")
	}
	if job.DeletionTimestamp != nil {
		notes = append(notes, "being deleted for "+p.age(job.DeletionTimestamp))
	}
	if ptr.Deref(job.Spec.Suspend, false) {
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
	job, text := p.job, strconv.Itoa(int(p.job.Status.Restarts))
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

// remedies returns what would let the job run as desired, as the page of kubectl di ui shows it.
func (p *page) remedies() table {
	var rows table
	if waiting := remedy.For(p.job, replicas.GPUs(p.job, p.membership)); waiting != nil {
		for _, text := range waiting.Remedies {
			rows = append(rows, []string{text})
		}
	}
	return rows
}

func (p *page) conditions() table {
	rows := table{{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for i := range p.job.Status.Conditions {
		condition := &p.job.Status.Conditions[i]
		rows = append(rows, []string{condition.Type, string(condition.Status), p.age(condition.LastTransitionTime), condition.Reason,
			condition.Message})
	}
	return rows
}

func (p *page) lastFailure() table {
	failure := p.job.Status.LastFailure
	rows := table{{"Pod:", cmp.Or(failure.Pod, none)}}
	if failure.ExitCode != nil {
		rows.add("Exit code:", strconv.Itoa(int(*failure.ExitCode)))
	}
	rows.add("Reason:", failure.Reason)
	rows.add("Message:", failure.Message)
	if failure.Time != nil {
		rows.add("Seen:", p.moment(failure.Time))
	}
	return rows
}

func (p *page) tasks() table {
	rows := table{{"TASK", "TYPE", "DESIRED", "PODS"}}
	desired := replicas.Desired(p.job, p.membership)
	for i := range p.job.Spec.Tasks {
		task := &p.job.Spec.Tasks[i]
		name := names.TaskName(task)
		rows = append(rows, []string{name, string(task.Type), p.desired(desired.Tasks[i]), cmp.Or(replicas.Counts(p.job.Status.TaskStatus[name]), none)})
	}
	if aggregators := p.job.Status.TaskStatus[v2alpha1.AggregatorTaskStatus]; desired.Aggregators > 0 || len(aggregators) > 0 {
		rows = append(rows, []string{v2alpha1.AggregatorTaskStatus, "", p.desired(desired.Aggregators), cmp.Or(replicas.Counts(aggregators), none)})
	}
	return rows
}

// desired returns a number of desired pods as text.
func (p *page) desired(count int) string {
	switch {
	case count != replicas.Unknown:
		return strconv.Itoa(count)
	case p.unread[partMembers] != "":
		return "unknown"
	}
	return "0"
}

func (p *page) podTable() table {
	if len(p.pods) == 0 {
		return nil
	}
	rows := table{{"TASK", "POD", "STATUS", "RESTARTS", "EXIT CODE", "NODE", "AGE"}}
	for _, pod := range replicas.Sorted(p.job, p.pods) {
		restarts := strconv.Itoa(int(replicas.Restarts(pod)))
		if recreated := p.job.Status.ReplicaRestarts[pod.Name]; recreated > 0 {
			restarts += fmt.Sprintf(" (recreated: %d)", recreated)
		}
		rows = append(rows, []string{
			cmp.Or(replicas.Role(pod), none), pod.Name, statusOf(pod), restarts, exitCode(pod),
			cmp.Or(pod.Spec.NodeName, none), p.age(&pod.CreationTimestamp),
		})
	}
	return rows
}

// statusOf returns the state of a pod, and why it is not ready.
func statusOf(pod *corev1.Pod) string {
	status := replicas.Status(pod)
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	switch {
	case status == string(corev1.PodRunning) && !podstate.ReportsReady(pod):
		return status + ", not ready"
	case status == string(corev1.PodPending) && scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason != "":
		return status + ", " + scheduled.Reason
	}
	return status
}

// exitCode returns the exit code of a pod's main container, now or before its last restart.
func exitCode(pod *corev1.Pod) string {
	main := podstate.MainContainer(pod)
	if main == nil {
		return "-"
	}
	ended, suffix := main.State.Terminated, ""
	if ended == nil {
		ended, suffix = main.LastTerminationState.Terminated, " before"
	}
	if ended == nil {
		return "-"
	}
	text := strconv.Itoa(int(ended.ExitCode))
	if ended.Reason != "" && ended.Reason != "Completed" && ended.Reason != "Error" {
		text += " (" + ended.Reason + ")"
	}
	return text + suffix
}

func (p *page) members() table {
	if p.membership == nil || len(p.membership.Spec.Members) == 0 {
		return nil
	}
	rows := table{{"ROLE", "POD", "PHASE", "LOSSES", "FAILURE REPORTS", "REQUESTED"}}
	list := p.membership
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		lost := membership.Losses(&list.Status, member.Slot)
		name, phase := membership.PodName(p.job.Name, member, lost), "not created yet"
		for i := range list.Status.Slots {
			if slot := &list.Status.Slots[i]; slot.Slot == member.Slot && slot.Phase != "" {
				phase = string(slot.Phase)
			}
		}
		if replicas.IsFinished(p.job) {
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
	for _, pod := range p.pods {
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

func (p *page) eventTable() table {
	if len(p.events) == 0 {
		return table{{none + ", of those that the API server still keeps"}}
	}
	events := slices.Clone(p.events)
	slices.SortStableFunc(events, func(a, b corev1.Event) int {
		atA, _ := replicas.LastSeen(&a)
		atB, _ := replicas.LastSeen(&b)
		return atA.Compare(atB)
	})
	rows := table{{"TYPE", "REASON", "AGE", "OBJECT", "FROM", "MESSAGE"}}
	for i := range events {
		event := &events[i]
		at, count := replicas.LastSeen(event)
		age, about := p.age(&metav1.Time{Time: at}), "job"
		if count > 1 {
			age += fmt.Sprintf(" (x%d)", count)
		}
		if event.InvolvedObject.Kind == "Pod" {
			about = "pod " + event.InvolvedObject.Name
		}
		rows = append(rows, []string{event.Type, event.Reason, age, about, cmp.Or(event.Source.Component, event.ReportingController),
			event.Message})
	}
	return rows
}
