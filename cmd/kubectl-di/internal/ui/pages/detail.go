// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
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
	jobview.Observed
	Plans []*v2alpha1.ScalePlan
	// Version, Moments and Curves are what was observed of the job before.
	Version string
	Moments []api.Moment
	Curves  []api.Curve
	Best    *api.Curve
	// Others are the jobs that the caller sees.
	Others []Job
	// Report is the last report, indented.
	Report string
	// Rights are the actions that the user may take.
	Rights map[string]bool
	// Grants are the commands that allow other actions, and Given those for what the notes say is left out.
	Grants map[string][]string
	Notes  []string
	Given  []string
}

// Detail returns the page of a job.
func Detail(o *Observed) *api.JobDetail {
	view := jobview.Of(&o.Observed)
	row := rowOf(o.Job, &view.Summary)
	row.Version, row.Curve = cmp.Or(o.Version, row.Version), o.Best
	parts := Parts(o.Job, view, o.Members.List)
	detail := &api.JobDetail{
		Job: row, Parts: parts, Edges: Edges(o.Job, parts), Conditions: conditionsOf(view.Conditions), Facts: facts(o, view),
		Waiting: waitingOf(o.Job, row.GPUs, view.Waiting), Timeline: timeline(o, view), Curves: slices.Clone(o.Curves),
		Actions: Actions(o.Job, o.Members.List, parts, o.Rights), Plans: []api.Plan{}, Profilings: o.Report, Notes: append([]string{}, o.Notes...),
		Grants: o.Given, Cost: cost.OfPods(o.Pods, o.Now).IfAny(), Awaited: Awaited(&row, o.Others),
	}
	for i := range detail.Actions {
		if action := &detail.Actions[i]; action.Reason == noRight {
			action.Grant = o.Grants[action.Name]
		}
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
func facts(o *Observed, view *jobview.View) []api.Fact {
	all := []api.Fact{}
	for _, fact := range jobs.Facts(&o.Observed, view) {
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
func timeline(o *Observed, view *jobview.View) []api.Moment {
	job := o.Job
	all := append(phases(o, view), o.Moments...)
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
	if last := view.Failure; last != nil && last.At != nil {
		all = append(all, api.Moment{
			At: *last.At, Kind: "failure", Title: last.Reason, Text: cut(last.Text, mostFailure), Object: replicas.Name(job.Name, last.Pod), Warning: true,
			Remedies: last.Remedies,
		})
	}
	for i := range view.Events {
		all = append(all, momentOf(&view.Events[i]))
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
func phases(o *Observed, view *jobview.View) []api.Moment {
	var all []api.Moment
	for i := range view.Conditions {
		condition := &view.Conditions[i]
		if !isPhase(condition.Type) || condition.Status != corev1.ConditionTrue || condition.Since == nil {
			continue
		}
		isObserved := slices.ContainsFunc(o.Moments, func(moment api.Moment) bool {
			return moment.Kind == "phase" && moment.Title == condition.Type && moment.At.Sub(*condition.Since).Abs() < time.Minute
		})
		if !isObserved {
			all = append(all, api.Moment{At: *condition.Since, Kind: "phase", Title: condition.Type, Text: short(condition.Text)})
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
func momentOf(event *jobview.Event) api.Moment {
	return api.Moment{
		At: event.At.UTC(), Kind: kindOfEvent(event.Reason), Title: event.Reason, Text: short(event.Message), Count: event.Count,
		Object: event.Object, Warning: event.Type == corev1.EventTypeWarning,
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
