// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/plans"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

const (
	// mostTimeline and mostPlans bound the page of a job.
	mostTimeline = 500
	mostPlans    = 20
)

// Observed is what is known of a job.
type Observed struct {
	Job        *v2alpha1.DIJob
	Pods       []*corev1.Pod
	Membership *v2alpha1.Membership
	Events     []*corev1.Event
	Plans      []*v2alpha1.ScalePlan
	// Version, Moments and Curves are what was observed of the job before.
	Version string
	Moments []api.Moment
	Curves  []api.Curve
	Best    *api.Curve
	// Report is the last report, indented.
	Report string
	// Rights are the actions that the user may take.
	Rights map[string]bool
	Notes  []string
	Now    time.Time
}

// Detail returns the page of a job.
func Detail(o *Observed) *api.JobDetail {
	row := Row(o.Job)
	row.Version, row.Curve, row.GPUs = cmp.Or(o.Version, row.Version), o.Best, replicas.GPUs(o.Job, o.Membership)
	row.Roles = roles(o.Job, o.Membership)
	parts := Parts(o.Job, o.Pods, o.Membership, o.Now)
	detail := &api.JobDetail{
		Job: row, Parts: parts, Edges: Edges(o.Job, parts), Conditions: Conditions(o.Job), Facts: facts(o), Waiting: Waiting(o.Job, &row),
		Timeline: timeline(o), Curves: slices.Clone(o.Curves), Actions: Actions(o.Job, o.Membership, parts, o.Rights), Plans: []api.Plan{}, Profilings: o.Report,
		Notes: append([]string{}, o.Notes...),
	}
	if detail.Curves == nil {
		detail.Curves = []api.Curve{}
	}
	for _, plan := range o.Plans[max(0, len(o.Plans)-mostPlans):] {
		detail.Plans = append(detail.Plans, Plan(plan))
	}
	return detail
}

// facts returns what kubectl di describe says.
func facts(o *Observed) []api.Fact {
	all := []api.Fact{}
	for _, fact := range jobs.Facts(o.Job, o.Now) {
		all = append(all, api.Fact{Part: fact.Part, Title: fact.Title, Text: fact.Text})
	}
	return all
}

// Plan returns a ScalePlan.
func Plan(plan *v2alpha1.ScalePlan) api.Plan {
	return api.Plan{
		Namespace: plan.Namespace, Name: plan.Name, Job: plan.Spec.Job, Phase: string(cmp.Or(plan.Status.Phase, v2alpha1.PlanPending)),
		Origin: string(cmp.Or(plan.Spec.Origin, v2alpha1.PlanManual)), Change: plans.Change(&plan.Spec), Reason: plan.Spec.Reason,
		Message: plan.Status.Message, CreatedAt: plan.CreationTimestamp.UTC(), CompletedAt: timeOf(plan.Status.CompletionTime),
	}
}

// timeline returns what happened to a job, the oldest first.
func timeline(o *Observed) []api.Moment {
	job := o.Job
	all := append(phases(o), o.Moments...)
	for _, moment := range []struct {
		at                *metav1.Time
		kind, title, text string
	}{
		{&job.CreationTimestamp, "event", "Created", "The job was created."},
		{job.Status.CompletionTimestamp, "event", "Finished", fmt.Sprintf("The job finished: %s.", job.Status.Phase)},
	} {
		if at := timeOf(moment.at); at != nil {
			all = append(all, api.Moment{At: *at, Kind: moment.kind, Title: moment.title, Text: moment.text})
		}
	}
	if last := job.Status.LastFailure; last != nil && last.Time != nil {
		code := ""
		if last.ExitCode != nil {
			code = fmt.Sprintf(" with exit code %d", *last.ExitCode)
		}
		text := strings.TrimSuffix(fmt.Sprintf("Pod %s failed%s: %s", last.Pod, code, cmp.Or(last.Message, last.Reason)), ": ")
		all = append(all, api.Moment{
			At: last.Time.UTC(), Kind: "failure", Title: last.Reason, Text: short(text), Object: replicas.Name(job.Name, last.Pod), Warning: true,
		})
	}
	for _, event := range o.Events {
		all = append(all, momentOf(job, event))
	}
	for _, plan := range o.Plans {
		text := fmt.Sprintf("Plan %s (%s): %s", plan.Name, cmp.Or(plan.Status.Phase, v2alpha1.PlanPending), plans.Change(&plan.Spec))
		all = append(all, api.Moment{At: plan.CreationTimestamp.UTC(), End: timeOf(plan.Status.CompletionTime), Kind: "plan", Title: plan.Name, Text: short(text)})
	}
	slices.SortStableFunc(all, func(a, b api.Moment) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	endPhases(all)
	return all[max(0, len(all)-mostTimeline):]
}

// phases returns the phases that the conditions record, except those that were observed.
func phases(o *Observed) []api.Moment {
	var all []api.Moment
	for i := range o.Job.Status.Conditions {
		condition := &o.Job.Status.Conditions[i]
		at := timeOf(condition.LastTransitionTime)
		if !isPhase(condition.Type) || condition.Status != corev1.ConditionTrue || at == nil {
			continue
		}
		isObserved := slices.ContainsFunc(o.Moments, func(moment api.Moment) bool {
			return moment.Kind == "phase" && moment.Title == condition.Type && moment.At.Sub(*at).Abs() < time.Minute
		})
		if !isObserved {
			all = append(all, api.Moment{At: *at, Kind: "phase", Title: condition.Type, Text: short(words(condition))})
		}
	}
	return all
}

func isPhase(kind string) bool {
	switch v2alpha1.Phase(kind) {
	case v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling, v2alpha1.JobRunning,
		v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown:
		return true
	}
	return false
}

// endPhases ends each phase when the next one begins.
func endPhases(all []api.Moment) {
	last := -1
	for i := range all {
		if all[i].Kind != "phase" {
			continue
		}
		if last >= 0 {
			all[last].End = &all[i].At
		}
		last = i
	}
}

// momentOf returns the moment of an Event.
func momentOf(job *v2alpha1.DIJob, event *corev1.Event) api.Moment {
	at, count := replicas.LastSeen(event)
	return api.Moment{
		At: at.UTC(), Kind: kindOfEvent(event.Reason), Title: event.Reason, Text: short(event.Message), Count: count,
		Object: replicas.Name(job.Name, event.InvolvedObject.Name), Warning: event.Type == corev1.EventTypeWarning,
	}
}

func kindOfEvent(reason string) string {
	switch reason {
	case v2alpha1.ReasonJobRestarting, v2alpha1.ReasonReplicaRestarting, v2alpha1.ReasonReplicaLost:
		return "restart"
	case v2alpha1.ReasonJobRescheduling:
		return "reschedule"
	case v2alpha1.ReasonResized, v2alpha1.ReasonPodResized, v2alpha1.ReasonAutoscaled:
		return "resize"
	}
	return "event"
}
