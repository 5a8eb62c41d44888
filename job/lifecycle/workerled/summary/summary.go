// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package summary summarizes a worker-led job: its phase, the numbers of its pods, its conditions and the progress of its plan.
package summary

import (
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/gangs"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/problems"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/failures"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// Outcome is the last stage. It implements state.Outcome.
type Outcome struct {
	out   *state.Plan
	in    *state.Input
	facts *observed.Facts
	// ranked has no ranks if a rule settled the decision before they were assigned.
	ranked    ranked.Replicas
	sizes     *rightsize.Rules
	execution scaling.Execution
	handshake *handshake.Handshake
	// gang is what is decided about the gang.
	gang gangs.Plan
	// isBackingOff is set while disrupted pods wait to be recreated.
	isBackingOff bool
}

// Found is what the stages before found.
type Found struct {
	Handshake *handshake.Handshake
	// Ranked are the replicas; nil if a rule settled the decision before they had ranks.
	Ranked      *ranked.Replicas
	Disruptions failures.Disruptions
	// Gang is what is decided about the gang.
	Gang gangs.Plan
}

// New returns the last stage. A rule may have given up the completed ranks since they were recorded.
func New(out *state.Plan, job *observed.Facts, found Found) *Outcome {
	var r ranked.Replicas
	if found.Ranked != nil {
		r = *found.Ranked
	}
	r.Completed = ranks.Read(out.Status().CompletedRanks)
	return &Outcome{
		out: out, in: job.In, facts: job, ranked: r, sizes: rightsize.New(out, job.In), execution: scaling.NewExecution(out, job.In),
		handshake: found.Handshake, gang: found.Gang, isBackingOff: found.Disruptions.IsBackingOff,
	}
}

// Summarize writes the counts of a worker-led job and, unless a rule has set it,
// the phase.
func (o *Outcome) Summarize() {
	status := o.out.Status()
	o.out.RecordPodCounts(o.counts())
	disruptions.New(o.out, o.in).ResetBackoff(o.isAllReady(), o.isBackingOff)
	o.endResize()
	if o.facts.IsExcessive() && status.Phase != "" {
		// The replicas that its pods belong to are unknown.
		return
	}
	if state.IsFinished(status) || state.IsSuspended(o.in.Job) || state.IsHeld(o.in.Job) || status.Restarts > o.in.Job.Status.Restarts || status.Reschedules > o.in.Job.Status.Reschedules {
		return
	}
	o.summarizePhase()
}

// isAllReady reports whether every desired replica is ready or has succeeded. During a restart no
// replica is.
func (o *Outcome) isAllReady() bool {
	isSeated := len(o.ranked.Assignment.Replicas) == int(o.facts.Counts.Total)
	return isSeated && !slices.ContainsFunc(o.ranked.Assignment.Replicas, func(replica workload.Replica) bool {
		pod := o.in.PodNamed[replica.Pod]
		return !o.ranked.Completed.Has(replica.Rank) && (pod == nil || !podstate.Ready(pod))
	})
}

// reportPlace sets the condition for the placement while the operator's allocator is switched off.
// Otherwise the allocator owns that condition.
func (o *Outcome) reportPlace() {
	if !o.in.NoAllocator || !placements.WantsPlace(o.in.Job) {
		return
	}
	if placed := len(o.in.Job.Status.Allocation); placed > 0 {
		if !o.out.IsTrue(v2alpha1.ConditionAllocated) {
			o.out.RecordCondition(v2alpha1.ConditionAllocated, corev1.ConditionTrue, v2alpha1.ConditionAllocated,
				"status.allocation places "+english.Plural(placed, "replica", ""))
		}
		return
	}
	const message = "operator.allocator.enabled is false: the job waits until another allocator writes status.allocation"
	if o.out.RecordCondition(v2alpha1.ConditionAllocated, corev1.ConditionFalse, v2alpha1.ReasonNoAllocator, message) {
		o.out.Event(corev1.EventTypeWarning, v2alpha1.ReasonNoAllocator, message)
	}
}

// endResize clears the condition of a resize once exactly the desired pods exist and are
// ready.
func (o *Outcome) endResize() {
	const condition = v2alpha1.ConditionResizing
	if o.out.IsTrue(condition) && (state.IsFinished(o.out.Status()) || state.IsSuspended(o.in.Job) || o.hasNoExcess() && o.isAllReady()) {
		o.out.ClearCondition(condition)
	}
}

// hasNoExcess reports whether every pod belongs to a desired replica.
func (o *Outcome) hasNoExcess() bool {
	desired := make(map[string]bool, len(o.ranked.Assignment.Replicas))
	for i := range o.ranked.Assignment.Replicas {
		desired[o.ranked.Assignment.Replicas[i].Pod] = true
	}
	return !slices.ContainsFunc(o.in.Pods, func(pod *corev1.Pod) bool { return !desired[pod.Name] })
}

// Report implements state.Outcome. It records the end of a ScalePlan, and sets the conditions for the placement,
// the queue and the gang.
func (o *Outcome) Report() {
	o.execution.Report(o.progressOfPlan)
	o.reportPlace()
	upkeep.New(o.out, o.in).ReportQueue()
	if !o.facts.IsExcessive() {
		gangs.New(o.out, o.in, o.facts.Counts.Total).Report(o.gang, &o.ranked.Completed)
	}
}

// summarizePhase keeps a Running job Running while it has pods, because a resize or a replacement
// restarts no other replica. A job is Starting once all its pods are created.
func (o *Outcome) summarizePhase() {
	status := o.out.Status()
	existing, ready := 0, 0
	for i := range o.ranked.Assignment.Replicas {
		replica := &o.ranked.Assignment.Replicas[i]
		pod := o.in.PodNamed[replica.Pod]
		switch {
		case o.ranked.Completed.Has(replica.Rank):
			existing++
			ready++
		case pod != nil:
			existing++
			if podstate.Ready(pod) {
				ready++
			}
		}
	}
	switch wanted := len(o.ranked.Assignment.Replicas); {
	case existing == 0:
		// Between two attempts or placements the job has no pods for a moment.
		if state.IsUnplaced(o.in.Job) || status.Phase != v2alpha1.JobRestarting && status.Phase != v2alpha1.JobRescheduling {
			o.out.SetPhase(v2alpha1.JobPending, o.pendingMessage())
		}
	case ready == wanted:
		message := state.All(wanted, "replica") + english.PluralWord(wanted, " is", " are") + " ready"
		o.out.SetPhase(v2alpha1.JobRunning, message)
		o.out.UpdateMessage(string(v2alpha1.JobRunning), message)
	case status.Phase == v2alpha1.JobRunning:
		// readyReplicas has the number of ready replicas, which changes often.
		o.out.UpdateMessage(string(v2alpha1.JobRunning), notReady(wanted))
	case status.Phase == v2alpha1.JobStarting || existing == wanted:
		o.recordPending()
		o.out.SetPhase(v2alpha1.JobStarting, english.PluralWord(wanted, "the pod is created, 1 replica is desired", "pods are created, "+english.Plural(wanted, "replica", "")+" are desired"))
	case status.Phase == "":
		o.out.SetPhase(v2alpha1.JobPending, o.pendingMessage())
	}
}

// Desired returns the names of the desired pods whose ranks have not succeeded; false if no ranks are
// ranked.
func (o *Outcome) Desired() (pods map[string]bool, isKnown bool) {
	pods = map[string]bool{}
	for i := range o.ranked.Assignment.Replicas {
		if replica := &o.ranked.Assignment.Replicas[i]; !o.ranked.Completed.Has(replica.Rank) {
			pods[replica.Pod] = true
		}
	}
	return pods, len(o.ranked.Assignment.Replicas) > 0 || o.facts.Counts.Total == 0
}

func notReady(replicas int) string {
	return english.PluralWord(replicas, "the replica is not ready", "not "+state.All(replicas, "replica")+" are ready")
}

// recordPending records that a new job was Pending, even if its pods exist already.
func (o *Outcome) recordPending() {
	if o.out.Status().Phase == "" {
		o.out.RecordCondition(string(v2alpha1.JobPending), corev1.ConditionTrue, state.ReasonOf(v2alpha1.JobPending, false), o.pendingMessage())
	}
}

func (o *Outcome) pendingMessage() string {
	if state.IsUnplaced(o.in.Job) {
		return "the job waits for the allocator to place it"
	}
	if o.gang.LacksScheduler() {
		return "the job waits for a gang scheduler"
	}
	if o.out.Decision.Waits {
		return "the job waits until objects of an earlier job of its name are deleted"
	}
	if o.out.Status().Replicas == 0 {
		return "no replicas are desired: scale the job, or set replicas of a task"
	}
	return "not all pods are created yet"
}

// counts counts the pods, by task and for the scale subresource.
func (o *Outcome) counts() state.PodCounts {
	counts := o.out.PodCounts().Emptied()
	for _, pod := range o.in.Pods {
		counts.Add(pod.Labels[names.LabelTaskName], pod, problems.New(o.out, o.in).IsReady(pod))
	}
	elastic := names.ElasticTask(&o.in.Job.Spec)
	if elastic < 0 {
		return counts
	}
	task := names.TaskName(&o.in.Job.Spec.Tasks[elastic])
	for _, pod := range o.in.Pods {
		if pod.Labels[names.LabelTaskName] == task && podstate.Active(pod) {
			counts.Elastic++
		}
	}
	selector := names.WorkerJobLabels(o.in.Job.Name)
	selector[names.LabelTaskName] = task
	counts.Selector = labels.Set(selector).String()
	return counts
}
