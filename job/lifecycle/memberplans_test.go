// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func collectorsOf(count int32) v2alpha1.ScalePlanSpec {
	return v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: &count}}}
}

// complete settles a job and lets its pods run on a node until nothing changes.
func (w *world) complete() {
	w.t.Helper()
	for range 5 {
		w.settle()
		w.bind(w.podNames()...)
		w.now = w.now.Add(2 * state.DefaultDrain)
	}
	w.settle()
}

func (w *world) slotsOf(task v2alpha1.TaskType) []string {
	var slots []string
	for i := range w.membership.Spec.Members {
		if member := &w.membership.Spec.Members[i]; member.Task == task {
			slots = append(slots, member.Slot)
		}
	}
	return slots
}

func TestAPlanResizesTheMembersOfACoordinatorLedJob(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	w.membership.Spec.Members[2].Resources.CPUs = planned("", nil, "3", "").Resources.CPU
	w.plan("grow", collectorsOf(5))
	w.complete()
	w.expectPlan("grow", v2alpha1.PlanSucceeded, "3 -> 5 replicas of task collector")
	grown := w.slotsOf(v2alpha1.TaskTypeCollector)
	expect.Equal(t, "the others", slots, grown[:3])
	expect.Equal(t, "members", 5, len(grown))
	expect.Equal(t, "CPU of a new member, like that of the newest one", "3", names.MainContainerOf(w.pod(w.current(grown[4])[0])).Resources.Requests.Cpu().String())
	if !slices.Contains(w.events, v2alpha1.ReasonResized) {
		t.Errorf("no event names the plan: %v", w.events)
	}
	w.plan("shrink", collectorsOf(1))
	w.complete()
	w.expectPlan("shrink", v2alpha1.PlanSucceeded, "5 -> 1 replica of task collector")
	expect.Equal(t, "members", slots[:1], w.slotsOf(v2alpha1.TaskTypeCollector))
	expect.Equal(t, "losses", int32(0), w.membership.Status.Losses)
}

func TestAPlanRemovesNamedMembersAfterTheirDrainTime(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	pod := w.current(slots[1])[0]
	w.plan("remove", v2alpha1.ScalePlanSpec{Remove: []string{pod}})
	w.settle()
	expect.Equal(t, "members", []string{slots[0], slots[2]}, w.slotsOf(v2alpha1.TaskTypeCollector))
	w.now = w.now.Add(state.DefaultDrain)
	w.settle()
	w.expectPlan("remove", v2alpha1.PlanSucceeded, "remove "+pod)
	w.expectPods(coordinator, w.current(slots[0])[0], w.current(slots[2])[0])
}

func TestARemovedMemberIsDrained(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	pod := w.current(slots[1])[0]
	w.plan("remove", v2alpha1.ScalePlanSpec{Remove: []string{pod}})
	for range 5 {
		w.step()
	}
	expect.Equal(t, "the Membership has fewer members", 2, len(w.membership.Spec.Members))
	if w.pod(pod).DeletionTimestamp != nil {
		t.Error("the pod is deleted before its drain time is over")
	}
	w.expectPlan("remove", v2alpha1.PlanExecuting, "remove")
}

func TestAPlanReplacesNamedMembersOnAnotherNode(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	pod := w.current(slots[1])[0]
	w.plan("move", v2alpha1.ScalePlanSpec{Migrate: []v2alpha1.PodMigration{{Pod: pod}}})
	w.complete()
	w.expectPlan("move", v2alpha1.PlanSucceeded, "migrate "+pod)
	after := w.pod(w.current(slots[1])[0])
	if after.Name == pod || after.Spec.Affinity == nil {
		t.Fatalf("pod %s has affinity %+v, want another pod that avoids the node", after.Name, after.Spec.Affinity)
	}
	expect.Equal(t, "losses", int32(1), w.membership.Status.Losses)
}

func TestAPlanGivesMembersResources(t *testing.T) {
	for _, resizes := range []bool{false, true} {
		t.Run(fmt.Sprintf("resize in place: %t", resizes), func(t *testing.T) {
			w, slots := members(t, sizedLedJob())
			w.rightsizing.ResizesPods = resizes
			w.plan("memory", v2alpha1.ScalePlanSpec{
				Tasks:   []v2alpha1.TaskScale{{Name: "collector", Resources: memory("2Gi")}},
				Migrate: []v2alpha1.PodMigration{{Pod: w.current(slots[2])[0], Resources: memory("3Gi")}},
			})
			w.complete()
			w.expectPlan("memory", v2alpha1.PlanSucceeded, "memory=2Gi for task collector")
			for i, want := range []string{"2Gi/4Gi", "2Gi/4Gi", "3Gi/6Gi"} {
				expect.Equal(t, "memory of "+slots[i], want, w.memoryOf(w.current(slots[i])[0]))
			}
			lost := int32(3)
			if resizes {
				lost = 0
			}
			expect.Equal(t, "losses", lost, w.membership.Status.Losses)
		})
	}
}

func TestAPlanResizesUnitsWhole(t *testing.T) {
	w := led(t, sizedLedJob())
	first := w.ask(v2alpha1.TaskTypeLearner, 2, 2)
	w.complete()
	w.plan("grow", v2alpha1.ScalePlanSpec{Tasks: []v2alpha1.TaskScale{{Name: "learner", Replicas: ptr.To[int32](2)}}})
	w.complete()
	w.expectPlan("grow", v2alpha1.PlanSucceeded, "1 -> 2 replicas of task learner")
	expect.Equal(t, "pods", 7, len(w.pods))
	w.plan("remove", v2alpha1.ScalePlanSpec{Remove: []string{w.current(first)[0]}})
	w.complete()
	w.expectPlan("remove", v2alpha1.PlanSucceeded, "remove")
	expect.Equal(t, "pods", 4, len(w.pods))
}

func TestAPlanThatMembersCannotFollowIsRefusedBeforeAnythingChanges(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	before := w.membership.DeepCopy()
	for want, spec := range map[string]v2alpha1.ScalePlanSpec{
		`spec.tasks[0].name: "coordinator": must be a task of collectors or learners`: {Tasks: []v2alpha1.TaskScale{{Name: "coordinator", Resources: memory("2Gi")}}},
		"spec.launch: must be absent for a coordinator-led job":                       {Launch: []string{"job-collector-abcde"}},
		`spec.remove[0]: "job-coordinator": must be the name of a collector`:          {Remove: []string{coordinator}},
		`spec.remove[0]: "job-collector-abcde": must be the current pod of a member`:  {Remove: []string{"job-collector-abcde"}},
		"must be a pod of the job that the plan does not remove": {
			Remove: []string{w.current(slots[0])[0]}, Migrate: []v2alpha1.PodMigration{{Pod: w.current(slots[0])[0]}},
		},
		"1 replica of task learner: must be 0, because the job has none": {Tasks: []v2alpha1.TaskScale{{Name: "learner", Replicas: ptr.To[int32](1)}}},
		"5 replicas of task collector: must be 2, the number that results": {
			Tasks: collectorsOf(5).Tasks, Remove: []string{w.current(slots[0])[0]},
		},
		"2001 members: must be at most 2000": collectorsOf(2001),
	} {
		w.plan("plan", spec)
		w.settle()
		w.expectPlan("plan", v2alpha1.PlanRefused, want)
	}
	expect.Equal(t, "the members", before.Spec, w.membership.Spec)
}

func TestAPlanFollowsNoTaskThatTheRatioRuleSizes(t *testing.T) {
	spec := sizedLedJob()
	spec.Autoscale.Ratio = &v2alpha1.RatioRule{}
	w, _ := members(t, spec)
	w.plan("plan", collectorsOf(5))
	w.settle()
	w.expectPlan("plan", v2alpha1.PlanRefused, "they follow spec.autoscale.ratio of the job")
}

func TestAPlanWhoseMembersTheCoordinatorChangesFails(t *testing.T) {
	w, _ := members(t, sizedLedJob())
	w.plan("grow", collectorsOf(4))
	w.settle()
	w.expectPlan("grow", v2alpha1.PlanExecuting, "3 -> 4")
	w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	w.expectPlan("grow", v2alpha1.PlanFailed, "another writer set 5 members of task collector after the plan had set 4")
}

func TestAPlanOfACoordinatorLedJobFailsAtItsDeadline(t *testing.T) {
	w, _ := members(t, sizedLedJob())
	w.plan("grow", collectorsOf(4))
	w.settle()
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.expectPlan("grow", v2alpha1.PlanFailed, "not complete after 10m0s: pod job-collector-")
}

func TestAPlanIsRequestedOnceFromTheMembership(t *testing.T) {
	w, _ := members(t, sizedLedJob())
	w.plan("grow", collectorsOf(4))
	w.settle()
	// The status is written again from before the operator recorded that the plan was requested.
	w.change(func(job *v2alpha1.DIJob) { job.Status.Scaling.Plan.Resized = false })
	w.membership.Spec.Members = w.membership.Spec.Members[:2]
	w.settle()
	expect.Equal(t, "members", 2, len(w.membership.Spec.Members))
	expect.Equal(t, "the record is that of the plan", true, slices.ContainsFunc(w.membership.Spec.Requests, func(request v2alpha1.RecordedRequest) bool {
		return request.ID == names.PlanManager(w.job.Status.Scaling.Plan.UID) && request.Time.Before(&metav1.Time{Time: w.now})
	}))
}
