// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

// none is what stands where there is nothing.
const none = "<none>"

// render writes the page for people.
func (p *page) render() []byte {
	var out bytes.Buffer
	p.write(&out)
	return out.Bytes()
}

func (p *page) write(out *bytes.Buffer) {
	p.writeSummary(out)
	p.writeConditions(out)
	p.writeLastFailure(out)
	p.writeTasks(out)
	p.writePods(out)
	if p.job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		p.writeMembers(out)
	}
	if p.showEvents {
		p.writeEvents(out)
	}
}

// table writes rows in columns, each behind the same indent.
func table(out *bytes.Buffer, indent string, rows [][]string) {
	aligned := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = clean(cell)
		}
		fmt.Fprintln(aligned, indent+strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = aligned.Flush() // A buffer takes it all.
}

// clean makes one line of a text, without what a terminal would take for a command.
func clean(text string) string {
	return printers.EscapeTerminal(strings.Join(strings.Fields(text), " "))
}

// age says how long ago something was.
func (p *page) age(at *metav1.Time) string {
	if at == nil || at.IsZero() {
		return none
	}
	return duration.HumanDuration(max(p.now.Sub(at.Time), 0))
}

// moment says when something was, and how long ago that is.
func (p *page) moment(at *metav1.Time) string {
	return at.UTC().Format(time.RFC3339) + ", " + p.age(at) + " ago"
}

func (p *page) writeSummary(out *bytes.Buffer) {
	job := p.job
	rows := [][]string{
		{"Name:", job.Name},
		{"Namespace:", job.Namespace},
		{"Lifecycle:", string(cmp.Or(job.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed))},
		{"Phase:", p.phase()},
		{"Replicas:", p.replicas()},
		{"Created:", p.moment(&job.CreationTimestamp)},
	}
	if job.Status.CompletionTimestamp != nil {
		rows = append(rows, []string{"Finished:", p.moment(job.Status.CompletionTimestamp)})
	}
	rows = append(rows, []string{"Restarts:", p.restarts()})
	rows = append(rows, p.choices()...)
	if len(job.Labels) > 0 {
		rows = append(rows, []string{"Labels:", pairs(job.Labels)})
	}
	table(out, "", rows)
}

// phase says the phase, and what it does not tell.
func (p *page) phase() string {
	job := p.job
	notes := []string{cmp.Or(string(job.Status.Phase), "none yet: the operator has not seen the job")}
	if job.DeletionTimestamp != nil {
		notes = append(notes, "being deleted for "+p.age(job.DeletionTimestamp))
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		notes = append(notes, "suspended: kubectl di resume lets it go on")
	}
	if job.Status.Phase != "" && job.Status.ObservedGeneration < job.Generation {
		notes = append(notes, "the operator has not seen the last change of the spec")
	}
	return strings.Join(notes, ", ")
}

func (p *page) replicas() string {
	status := &p.job.Status
	return fmt.Sprintf("%d of %d ready", status.ReadyReplicas, status.Replicas)
}

// restarts says how often the job was started again, and how often it may be.
func (p *page) restarts() string {
	job, text := p.job, strconv.Itoa(int(p.job.Status.Restarts))
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		switch limit := ptr.Deref(job.Spec.BackoffLimit, 3); {
		case limit < 0:
			text += ", without limit"
		default:
			text += fmt.Sprintf(" of at most %d", limit)
		}
	}
	if job.Status.Reschedules > 0 {
		text += fmt.Sprintf(", reschedules: %d", job.Status.Reschedules)
	}
	return text
}

// choices are what of the spec is not the default.
func (p *page) choices() [][]string {
	spec := &p.job.Spec
	var rows [][]string
	add := func(title, text string) {
		if text != "" {
			rows = append(rows, []string{title, text})
		}
	}
	add("Group:", spec.Group)
	add("Priority:", cmp.Or(spec.PriorityClassName, string(spec.Priority)))
	if spec.Preemptible {
		add("Preemptible:", "the allocator places it")
	}
	if elastic := names.ElasticTask(spec); elastic >= 0 && spec.Elastic != nil {
		add("Elastic:", fmt.Sprintf("task %s, %s", names.TaskName(&spec.Tasks[elastic]), bounds(spec.Elastic)))
	}
	if spec.ActiveDeadlineSeconds != nil {
		add("Deadline:", fmt.Sprintf("%ds of being active", *spec.ActiveDeadlineSeconds))
	}
	if manager := names.OtherManager(spec); manager != "" {
		add("Managed by:", manager)
	}
	return rows
}

// bounds says how many replicas the elastic task may have.
func bounds(elastic *v2alpha1.Elastic) string {
	switch {
	case elastic.MinReplicas != nil && elastic.MaxReplicas != nil:
		return fmt.Sprintf("%d to %d replicas", *elastic.MinReplicas, *elastic.MaxReplicas)
	case elastic.MinReplicas != nil:
		return fmt.Sprintf("%d replicas or more", *elastic.MinReplicas)
	case elastic.MaxReplicas != nil:
		return fmt.Sprintf("up to %d replicas", *elastic.MaxReplicas)
	}
	return "any number of replicas"
}

func pairs(values map[string]string) string {
	var text []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text = append(text, key+"="+values[key])
	}
	return strings.Join(text, ", ")
}

func (p *page) writeConditions(out *bytes.Buffer) {
	if len(p.job.Status.Conditions) == 0 {
		return
	}
	rows := [][]string{{"TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for i := range p.job.Status.Conditions {
		condition := &p.job.Status.Conditions[i]
		rows = append(rows, []string{condition.Type, string(condition.Status), p.age(condition.LastTransitionTime), condition.Reason, condition.Message})
	}
	fmt.Fprintln(out, "\nConditions:")
	table(out, "  ", rows)
}

func (p *page) writeLastFailure(out *bytes.Buffer) {
	failure := p.job.Status.LastFailure
	if failure == nil {
		return
	}
	rows := [][]string{{"Pod:", cmp.Or(failure.Pod, none)}}
	if failure.ExitCode != nil {
		rows = append(rows, []string{"Exit code:", strconv.Itoa(int(*failure.ExitCode))})
	}
	if failure.Reason != "" {
		rows = append(rows, []string{"Reason:", failure.Reason})
	}
	if failure.Message != "" {
		rows = append(rows, []string{"Message:", failure.Message})
	}
	if failure.Time != nil {
		rows = append(rows, []string{"Seen:", p.moment(failure.Time)})
	}
	fmt.Fprintln(out, "\nLast failure:")
	table(out, "  ", rows)
}

// writeTasks writes the tasks of the job and the state of their pods.
func (p *page) writeTasks(out *bytes.Buffer) {
	rows := [][]string{{"TASK", "TYPE", "WANTED", "PODS"}}
	for i := range p.job.Spec.Tasks {
		task := &p.job.Spec.Tasks[i]
		name := names.TaskName(task)
		rows = append(rows, []string{name, string(task.Type), p.wanted(i), counts(p.job.Status.TaskStatus[name])})
	}
	if aggregators := p.job.Status.TaskStatus[v2alpha1.AggregatorTaskStatus]; len(aggregators) > 0 {
		rows = append(rows, []string{v2alpha1.AggregatorTaskStatus, "", "", counts(aggregators)})
	}
	fmt.Fprintln(out, "\nTasks:")
	table(out, "  ", rows)
}

// wanted returns the desired replicas of a task.
func (p *page) wanted(task int) string {
	if p.job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		return strconv.Itoa(int(sizing.Count(p.job, task)))
	}
	of := p.job.Spec.Tasks[task].Type
	switch {
	case of == v2alpha1.TaskTypeCoordinator:
		return "1"
	case p.unread[partMembers] != "":
		return "unknown"
	case p.membership == nil:
		return "0"
	}
	wanted := 0
	for i := range p.membership.Spec.Members {
		if p.membership.Spec.Members[i].Task == of {
			wanted++
		}
	}
	return strconv.Itoa(wanted)
}

func counts(pods v2alpha1.TaskStatus) string {
	var text []string
	for _, phase := range slices.Sorted(maps.Keys(pods)) {
		if pods[phase] > 0 {
			text = append(text, fmt.Sprintf("%d %s", pods[phase], phase))
		}
	}
	return cmp.Or(strings.Join(text, ", "), none)
}

// writeMembers writes what the coordinator asked for.
func (p *page) writeMembers(out *bytes.Buffer) {
	fmt.Fprintln(out, "\nMembers, which the coordinator asked for:")
	if p.refused(out, partMembers) {
		return
	}
	if p.membership == nil || len(p.membership.Spec.Members) == 0 {
		fmt.Fprintln(out, "  "+none)
		return
	}
	rows := [][]string{{"ROLE", "POD", "PHASE", "LOSSES", "FAILURE REPORTS", "REQUESTED"}}
	list := p.membership
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		lost := membership.Losses(&list.Status, member.Slot)
		rows = append(rows, []string{
			string(membership.Role(member)), membership.PodName(p.job.Name, member, lost), p.memberPhase(member),
			strconv.Itoa(int(lost)), strconv.Itoa(int(member.FailureReports)), asked(member),
		})
	}
	table(out, "  ", rows)
	if retained := len(list.Spec.RetainedPods); retained > 0 {
		fmt.Fprintf(out, "  Retained pods, gone and still advertised: %d\n", retained)
	}
}

func (p *page) memberPhase(member *v2alpha1.Member) string {
	for i := range p.membership.Status.Slots {
		if slot := &p.membership.Status.Slots[i]; slot.Slot == member.Slot && slot.Phase != "" {
			return string(slot.Phase)
		}
	}
	return "not created yet"
}

// asked says what a member was asked for beyond the template.
func asked(member *v2alpha1.Member) string {
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

// refused writes that a part may not be read, and reports whether that is so.
func (p *page) refused(out *bytes.Buffer, part string) bool {
	why, refused := p.unread[part]
	if refused {
		fmt.Fprintln(out, "  not shown, as you may not read this: "+strings.ReplaceAll(why, "\n", "\n  "))
	}
	return refused
}

func (p *page) writeEvents(out *bytes.Buffer) {
	fmt.Fprintln(out, "\nEvents:")
	if p.refused(out, partEvents) {
		return
	}
	if len(p.events) == 0 {
		fmt.Fprintln(out, "  "+none+", of those that the API server still keeps")
		return
	}
	events := slices.Clone(p.events)
	slices.SortStableFunc(events, func(a, b corev1.Event) int {
		return eventTime(&a).Compare(eventTime(&b).Time)
	})
	rows := [][]string{{"TYPE", "REASON", "AGE", "OBJECT", "FROM", "MESSAGE"}}
	for i := range events {
		event := &events[i]
		rows = append(rows, []string{event.Type, event.Reason, p.eventAge(event), p.about(event), cmp.Or(event.Source.Component, event.ReportingController), event.Message})
	}
	table(out, "  ", rows)
}

// about reports whether an event is about the job or a pod.
func (p *page) about(event *corev1.Event) string {
	if event.InvolvedObject.Kind == "Pod" {
		return "pod " + event.InvolvedObject.Name
	}
	return "job"
}

// eventTime returns when an event was last.
func eventTime(event *corev1.Event) *metav1.Time {
	switch {
	case event.Series != nil && !event.Series.LastObservedTime.IsZero():
		return &metav1.Time{Time: event.Series.LastObservedTime.Time}
	case !event.LastTimestamp.IsZero():
		return &event.LastTimestamp
	case !event.EventTime.IsZero():
		return &metav1.Time{Time: event.EventTime.Time}
	}
	return &event.CreationTimestamp
}

func (p *page) eventAge(event *corev1.Event) string {
	text, count := p.age(eventTime(event)), event.Count
	if event.Series != nil {
		count = event.Series.Count
	}
	if count > 1 {
		text += fmt.Sprintf(" (x%d)", count)
	}
	return text
}
