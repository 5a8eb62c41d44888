// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// sizedLedJob is a coordinator-led job under the rules of memory and pending.
func sizedLedJob() v2alpha1.DIJobSpec {
	spec := ledJob()
	for i := range spec.Tasks {
		spec.Tasks[i].Template = sizedTemplate
	}
	spec.Autoscale = &v2alpha1.Autoscale{Memory: &v2alpha1.MemoryRule{}, Pending: &v2alpha1.PendingRule{}}
	return spec
}

// members starts a coordinator-led job with three collectors that run, and returns their slots.
func members(t *testing.T, spec v2alpha1.DIJobSpec) (w *world, slots []string) {
	t.Helper()
	w = led(t, spec)
	for range 3 {
		slots = append(slots, w.ask(v2alpha1.TaskTypeCollector))
	}
	w.settle()
	w.bind(w.podNames()...)
	w.settle()
	return w, slots
}

// restart makes the kubelet restart the main container of a pod that was out of memory.
func (w *world) restart(name string) {
	w.actuate(name)
	w.pod(name).Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: v2alpha1.ReasonOOMKilled, FinishedAt: metav1.NewTime(w.now),
	}
}

func TestAnOutOfMemoryMemberIsReplacedWithMoreMemory(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	before := w.current(slots[1])[0]
	w.kill(before)
	w.step()
	expect.Equal(t, "recorded before a pod is created", []string{"collector-" + slots[1] + " memory=2Gi OutOfMemory 1"}, w.overridesOf())
	expect.Equal(t, "its pod", before, w.current(slots[1])[0])
	w.settle()
	expect.Equal(t, "its memory", "2Gi/4Gi", w.memoryOf(w.current(slots[1])[0]))
	expect.Equal(t, "another one's", "1Gi/2Gi", w.memoryOf(w.current(slots[0])[0]))
	expect.Equal(t, "the losses of the others", int32(1), w.membership.Status.Losses)
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionResourcesAdjusted)
	want := "member " + slots[1] + " of task collector gets memory 2Gi instead of 1Gi, because pod " + before + " used more than its limit (attempt 1 of 3)"
	expect.Equal(t, "condition", want, condition.Message)
}

func TestMemoryGrowsAlthoughTheCoordinatorReportedTheFailureFirst(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	before := w.current(slots[1])[0]
	w.membership.Spec.Members[1].FailureReports++
	w.membership.Spec.Requests = []v2alpha1.RecordedRequest{{
		Time: metav1.NewTime(w.now), Collectors: []string{names.ReplicaURL(w.current(slots[1])[0], "space", names.DefaultPort(names.ReplicaTypeCollector))},
	}}
	w.step()
	w.kill(before)
	w.settle()
	expect.Equal(t, "overrides", []string{"collector-" + slots[1] + " memory=2Gi OutOfMemory 1"}, w.overridesOf())
	expect.Equal(t, "memory of its new pod", "2Gi/4Gi", w.memoryOf(w.current(slots[1])[0]))
}

func TestAMemberWhoseContainerRestartsIsResizedOrReplaced(t *testing.T) {
	for name, resizes := range map[string]bool{"resized": true, "replaced": false} {
		t.Run(name, func(t *testing.T) {
			w, slots := members(t, sizedLedJob())
			w.rightsizing.ResizesPods = resizes
			before := w.current(slots[0])[0]
			w.restart(before)
			w.settle()
			after := w.current(slots[0])[0]
			expect.Equal(t, "memory", "2Gi/4Gi", w.memoryOf(after))
			expect.Equal(t, "the pod stays", resizes, after == before)
			w.restart(after)
			w.pod(after).Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.NewTime(w.now.Add(-time.Hour))
			if resizes {
				w.settle()
				expect.Equal(t, "memory after the previous kill", "2Gi/4Gi", w.memoryOf(w.current(slots[0])[0]))
			}
		})
	}
}

func TestTwoKillsGiveAllMembersMoreMemoryButNoneLessThanItRequested(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	w.rightsizing.ResizesPods = true
	w.membership.Spec.Members[2].Resources.Memory = ptr.To(resource.MustParse("8Gi"))
	delete(w.pods, w.current(slots[2])[0])
	w.settle()
	w.bind(w.current(slots[2])...)
	w.settle()
	large := w.current(slots[2])[0]
	for _, slot := range slots[:2] {
		w.kill(w.current(slot)[0])
		w.settle()
		w.bind(w.current(slot)...)
		w.settle()
	}
	expect.Equal(t, "overrides", []string{"collector memory=2Gi OutOfMemory 1"}, w.overridesOf())
	for i, want := range []string{"2Gi/4Gi", "2Gi/4Gi", "8Gi/8Gi"} {
		expect.Equal(t, "memory of "+slots[i], want, w.memoryOf(w.current(slots[i])[0]))
	}
	expect.Equal(t, "the large one's pod", large, w.current(slots[2])[0])
	grown := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	expect.Equal(t, "memory of a new member", "2Gi/4Gi", w.memoryOf(w.current(grown)[0]))
}

func TestAnOutOfMemoryDDPLearnerGivesItsUnitMoreMemory(t *testing.T) {
	w := led(t, sizedLedJob())
	slot := w.ask(v2alpha1.TaskTypeLearner, 2, 2)
	w.settle()
	w.bind(w.podNames()...)
	w.settle()
	w.kill(w.current(slot)[2])
	w.settle()
	for _, pod := range w.current(slot)[1:] {
		expect.Equal(t, "memory of "+pod, "2Gi/4Gi", w.memoryOf(pod))
	}
	expect.Equal(t, "its aggregator's", "0/0", w.memoryOf(w.current(slot)[0]))
}

func TestAnOutOfMemoryCoordinatorIsRecreatedWithMoreMemory(t *testing.T) {
	w, _ := members(t, sizedLedJob())
	for _, want := range []string{"2Gi/4Gi", "4Gi/8Gi", "8Gi/16Gi"} {
		w.kill(coordinator)
		w.settle()
		expect.Equal(t, "memory", want, w.memoryOf(coordinator))
		w.bind(coordinator)
		w.settle()
		w.expectPhase(v2alpha1.JobRunning)
	}
	w.kill(coordinator)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	if !slices.Contains(w.events, v2alpha1.OverrideOutOfMemory) {
		t.Errorf("no event says why memory does not grow: %v", w.events)
	}
}

func TestWithoutTheRuleAnOutOfMemoryCoordinatorFailsTheJob(t *testing.T) {
	w, slots := members(t, ledJob())
	w.kill(w.current(slots[0])[0])
	w.settle()
	if w.job.Status.Scaling != nil {
		t.Fatalf("scaling is %+v, want none", w.job.Status.Scaling)
	}
	w.kill(coordinator)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
}

func TestResourcesOfRemovedMembersAreForgotten(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	w.kill(w.current(slots[1])[0])
	w.settle()
	w.membership.Spec.Members = slices.Delete(w.membership.Spec.Members, 1, 2)
	w.settle()
	expect.Equal(t, "overrides", 0, len(w.overridesOf()))
}

func TestUnschedulableMembersAndCoordinatorsRequestLess(t *testing.T) {
	w := settled(t, sizedLedJob())
	w.starve(coordinator)
	w.now = w.now.Add(time.Hour)
	w.settle()
	expect.Equal(t, "the coordinator's memory", "512Mi/1Gi", w.memoryOf(coordinator))
	w.bind(coordinator)
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	before := w.current(slot)[0]
	w.starve(before)
	w.now = w.now.Add(time.Hour)
	w.settle()
	after := w.current(slot)[0]
	expect.Equal(t, "the member's memory", "512Mi/1Gi", w.memoryOf(after))
	expect.Equal(t, "the member has another pod", true, after != before)
	expect.Equal(t, "overrides", []string{"coordinator-0 cpu=500m,memory=512Mi Unschedulable 1", "collector-" + slot + " cpu=500m,memory=512Mi Unschedulable 1"}, w.overridesOf())
}

func TestACoordinatorLedJobStartsWithTheMemoryThatItsGroupNeeded(t *testing.T) {
	spec := sizedLedJob()
	spec.Group = "cartpole"
	w := newWorld(t, spec)
	w.rightsizing = state.Rightsizing{GroupJob: "earlier", GroupOverrides: []v2alpha1.ResourceOverride{
		{Task: "collector", Resources: planned("", nil, "", "3Gi").Resources, Reason: v2alpha1.OverrideOutOfMemory},
		{Task: "learner", Slot: "learner-x", Resources: planned("", nil, "", "8Gi").Resources, Reason: v2alpha1.OverrideOutOfMemory},
	}}
	w.settle()
	w.run(coordinator)
	w.settle()
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	expect.Equal(t, "memory", "3Gi/6Gi", w.memoryOf(w.current(slot)[0]))
	expect.Equal(t, "overrides", []string{"collector memory=3Gi OutOfMemory 0"}, w.overridesOf())
}

func TestResourcesOfATaskReplaceOneMemberAfterTheOtherWherePodsCannotBeResized(t *testing.T) {
	w, slots := members(t, sizedLedJob())
	w.change(func(job *v2alpha1.DIJob) {
		job.Status.Scaling = &v2alpha1.ScalingStatus{Resources: []v2alpha1.ResourceOverride{planned("collector", nil, "2", "")}}
	})
	for i := range slots {
		w.settle()
		expect.Equal(t, "losses", int32(i+1), w.membership.Status.Losses)
		w.bind(w.podNames()...)
	}
	w.settle()
	for _, slot := range slots {
		expect.Equal(t, "CPU", "2", names.MainContainerOf(w.pod(w.current(slot)[0])).Resources.Requests.Cpu().String())
	}
}
