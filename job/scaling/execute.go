// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// A job executes a plan in steps. The first reconcile records the plan with all that it changes. The next ones
// act on the record: they write the counts, replace pods, and let the other rules create, resize and delete
// pods. The last one records the result.

// Execution is the execution of a plan by its job.
type Execution struct {
	out *state.Plan
	in  *state.Input
}

// NewExecution returns the execution of the plan of an observed job. It writes to out.
func NewExecution(out *state.Plan, in *state.Input) Execution { return Execution{out: out, in: in} }

// Progress is what an executing plan waits for or fails by, "" for nothing.
type Progress struct {
	// Missing is what is missing until the plan is complete.
	Missing string
	// Failed is why it cannot complete.
	Failed string
}

// Take records the plan that the job executes next, and the resources that it gives the pods.
func (e Execution) Take() state.Result {
	next := Next(e.in.Job, e.in.Plans)
	if next == nil || state.IsFinished(&e.in.Job.Status) || state.IsSuspended(e.in.Job) {
		return state.Continue
	}
	created := next.CreationTimestamp
	record := v2alpha1.PlanRecord{Name: next.Name, UID: string(next.UID), CreationTime: &created, StartTime: &e.in.Timestamp, Phase: v2alpha1.PlanExecuting}
	change, problems := Read(next, e.in.Job, e.in.Membership, e.MaxPods())
	if len(problems) > 0 {
		// The job changed after the plan was accepted.
		e.record(e.ended(record, v2alpha1.PlanRefused, state.Few(problems, "; ")), e.out.Scaling().Resources)
		return state.Continue
	}
	record.Message, record.Replicas = change.Message, change.Replicas
	for task, indexes := range change.Indexes {
		if record.Indexes == nil {
			record.Indexes = map[string]string{}
		}
		record.Indexes[task] = ranks.FormatRun(indexes)
	}
	for _, name := range change.Migrate {
		// A pod that does not exist yet need not be replaced.
		if pod := e.in.PodNamed[name]; pod != nil && !podstate.Terminating(pod) {
			record.Migrations = append(record.Migrations, v2alpha1.MigratedPod{Pod: name, UID: string(pod.UID), Node: pod.Spec.NodeName})
		}
	}
	e.record(record, change.Resources)
	return state.Continue
}

// MaxPods is the maximum number of pods of the job.
func (e Execution) MaxPods() int32 {
	return cmp.Or(e.in.Settings.MaxPods, limits.PodsPerJob)
}

// Record returns the planned record of a plan, nil if there is none.
func (e Execution) Record() *v2alpha1.PlanRecord {
	return e.out.Scaling().Plan
}

// IsExecuting reports whether the planned record is the recorded one, and executes.
func (e Execution) IsExecuting() bool {
	recorded, planned := RecordOf(e.in.Job), e.Record()
	return recorded != nil && planned != nil && recorded.UID == planned.UID && planned.Phase == v2alpha1.PlanExecuting
}

// Migrate deletes the pods that a plan replaces, as soon as they may be released.
func (e Execution) Migrate(mayRelease func(*corev1.Pod) bool) {
	if !e.IsExecuting() {
		return
	}
	for _, migrated := range e.Record().Migrations {
		pod := e.in.PodNamed[migrated.Pod]
		if pod != nil && string(pod.UID) == migrated.UID && !podstate.Finished(pod) && mayRelease(pod) {
			e.out.DeletePod(pod)
		}
	}
}

// EditMembers writes the members of a plan into the Membership of its job, once, as a request that is
// recorded there. Another writer may change them from then on.
func (e Execution) EditMembers() state.Result {
	record, plan := Executing(e.in.Job, e.in.Plans)
	if plan == nil || !e.IsExecuting() || e.Record().Resized {
		return state.Continue
	}
	isChange := len(record.Replicas) > 0
	resize := resizeOf(e.in.Job, record, plan, e.MaxPods()-1)
	if isChange && !resize.IsRecorded(&e.in.Membership.Spec) {
		list := e.in.Membership.DeepCopy()
		if err := resize.Apply(&list.Spec, &list.Status, e.in.Now); err != nil {
			e.finish(v2alpha1.PlanFailed, err.Error())
			return state.Continue
		}
		e.out.Decision.UpdateMembership = list
		return state.Settled
	}
	e.RecordResized()
	if isChange {
		e.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonResized, fmt.Sprintf("%s, by %s", record.Message, names.PlanManager(record.Name)))
	}
	return state.Continue
}

// Report records the end of the executing plan, if its progress ends it.
func (e Execution) Report(progress func(*v2alpha1.ScalePlan) Progress) {
	if plan := e.due(); plan != nil {
		e.conclude(plan, progress(plan))
	}
}

// due returns the plan whose progress is due; nil if there is none. It records the end of a plan that can make none.
func (e Execution) due() *v2alpha1.ScalePlan {
	record, plan := Executing(e.in.Job, e.in.Plans)
	switch {
	case record == nil || !e.IsExecuting():
	case plan == nil:
		e.finish(v2alpha1.PlanFailed, "the plan was deleted before it was complete")
	case state.IsFinished(e.out.Status()):
		e.finish(v2alpha1.PlanFailed, "the job finished before the plan was complete")
	default:
		return plan
	}
	return nil
}

// conclude records the end of the plan that is due, if its progress ends it.
func (e Execution) conclude(plan *v2alpha1.ScalePlan, now Progress) {
	record := RecordOf(e.in.Job)
	switch left := record.StartTime.Add(Deadline(plan)).Sub(e.in.Now); {
	case now.Missing == "":
		e.finish(v2alpha1.PlanSucceeded, record.Message)
	case left <= 0:
		e.finish(v2alpha1.PlanFailed, fmt.Sprintf("not complete after %s: %s", Deadline(plan), now.Missing))
	case now.Failed != "":
		e.finish(v2alpha1.PlanFailed, now.Failed)
	default:
		e.out.RequeueAfter(left)
	}
}

// finish records the end of the plan.
func (e Execution) finish(phase v2alpha1.PlanPhase, message string) {
	e.record(e.ended(*e.Record(), phase, message), e.out.Scaling().Resources)
}

// ended returns the record of a plan that ends now.
func (e Execution) ended(record v2alpha1.PlanRecord, phase v2alpha1.PlanPhase, message string) v2alpha1.PlanRecord {
	record.Phase, record.Message, record.CompletionTime = phase, message, &e.in.Timestamp
	return record
}

// RecordResized records that the job desires what the plan requests.
func (e Execution) RecordResized() {
	record := *e.Record()
	record.Resized = true
	e.record(record, e.out.Scaling().Resources)
}

// record records a plan with the resources that pods have by it.
func (e Execution) record(record v2alpha1.PlanRecord, resources []v2alpha1.ResourceOverride) {
	scaling := e.out.Scaling()
	scaling.Plan, scaling.Resources = &record, resources
	e.out.RecordScaling(&scaling)
}
