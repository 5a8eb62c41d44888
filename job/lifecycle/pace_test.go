// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// manyWorkers returns a job of that many collectors.
func manyWorkers(count int32) v2alpha1.DIJobSpec {
	return v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Replicas: &count, Template: template}}}
}

func TestCountsAloneAreWrittenOnceAnInterval(t *testing.T) {
	tests := map[string]struct {
		change func(*Observed)
		// since is the time since the last write; negative if it is unknown.
		since     time.Duration
		wantWrite bool
		wantAfter time.Duration
	}{
		"a count after no write":            {oneMoreReady, -1, true, 0},
		"a count soon after a write":        {oneMoreReady, 300 * time.Millisecond, false, 700 * time.Millisecond},
		"a count an interval after":         {oneMoreReady, time.Second, true, 0},
		"a count, the clock set back":       {oneMoreReady, -time.Hour, true, 0},
		"no change soon after a write":      {func(*Observed) {}, 300 * time.Millisecond, false, 0},
		"a phase soon after a write":        {allReady, 300 * time.Millisecond, true, 0},
		"a failure soon after a write":      {oneFailed, 300 * time.Millisecond, true, 0},
		"a generation soon after a write":   {func(o *Observed) { o.Job.Generation++ }, 300 * time.Millisecond, true, 0},
		"a suspension soon after a write":   {func(o *Observed) { o.Job.Spec.Suspend = ptr.To(true) }, 300 * time.Millisecond, true, 0},
		"another size soon after a write":   {func(o *Observed) { o.Job.Spec.Tasks[0].Replicas = ptr.To(int32(4)) }, 300 * time.Millisecond, true, 0},
		"a completion soon after a write":   {oneSucceeded, 300 * time.Millisecond, false, 700 * time.Millisecond},
		"a completion long after a write":   {oneSucceeded, time.Minute, true, 0},
		"the last completion after a write": {allSucceeded, 300 * time.Millisecond, true, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := settled(t, manyWorkers(3))
			observed := w.observe()
			if tc.since != -1 {
				observed.Written = observed.Now.Add(-tc.since)
			}
			tc.change(&observed)
			decision := Decide(observed)
			outcome := Conclude(&observed, &decision, &Effects{})
			if diff := cmp.Diff(observed.Job.Status, outcome.Status); (diff != "") != tc.wantWrite {
				t.Errorf("written is %v, want %v (-recorded +written):\n%s", diff != "", tc.wantWrite, diff)
			}
			expect.Equal(t, "looked at again after", tc.wantAfter, soon(outcome.RequeueAfter))
		})
	}
}

// soon ignores the requeue for the pods of a test, which no scheduler places.
func soon(after time.Duration) time.Duration {
	if after > CountsInterval {
		return 0
	}
	return after
}

func becomes(pod *corev1.Pod, phase corev1.PodPhase, ready corev1.ConditionStatus) {
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
}

func oneMoreReady(o *Observed) { becomes(o.Pods[0], corev1.PodRunning, corev1.ConditionTrue) }
func oneFailed(o *Observed)    { becomes(o.Pods[0], corev1.PodFailed, corev1.ConditionFalse) }
func oneSucceeded(o *Observed) { becomes(o.Pods[0], corev1.PodSucceeded, corev1.ConditionFalse) }

func allReady(o *Observed) {
	for _, pod := range o.Pods {
		becomes(pod, corev1.PodRunning, corev1.ConditionTrue)
	}
}

func allSucceeded(o *Observed) {
	for _, pod := range o.Pods {
		becomes(pod, corev1.PodSucceeded, corev1.ConditionFalse)
	}
}

func TestPhasesOfSlotsAloneAreWrittenOnceAnInterval(t *testing.T) {
	recorded := v2alpha1.MembershipStatus{Members: 1, Slots: []v2alpha1.SlotStatus{{Slot: "a", Phase: corev1.PodPending}}}
	tests := map[string]struct {
		change    func(*v2alpha1.MembershipStatus)
		wantWrite bool
	}{
		"a phase":    {func(status *v2alpha1.MembershipStatus) { status.Slots[0].Phase = corev1.PodRunning }, false},
		"a loss":     {func(status *v2alpha1.MembershipStatus) { status.Slots[0].Losses++ }, true},
		"a launch":   {func(status *v2alpha1.MembershipStatus) { status.Slots[0].ObservedPod = "pod" }, true},
		"a new slot": {func(status *v2alpha1.MembershipStatus) { status.Slots = append(status.Slots, v2alpha1.SlotStatus{}) }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := recorded.DeepCopy()
			tc.change(wanted)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			observed := Observed{Membership: &v2alpha1.Membership{Status: recorded}, Now: now, Written: now.Add(-time.Millisecond)}
			decision := Decision{MembershipStatus: wanted}
			delayPhases(&decision, &observed)
			expect.Equal(t, "written", tc.wantWrite, decision.MembershipStatus != nil)
			if tc.wantWrite != (decision.RequeueAfter == 0) {
				t.Errorf("looked at again after %v", decision.RequeueAfter)
			}
		})
	}
}

func TestASuccessIsRecordedBeforeASuspendedJobsPodIsDeleted(t *testing.T) {
	w := settled(t, manyWorkers(3))
	w.end("job-collector-1", 0)
	w.job.Spec.Suspend = ptr.To(true)
	decision := Decide(w.observe())
	for _, pod := range decision.DeletePods {
		if pod.Name == "job-collector-1" {
			t.Fatal("a pod is deleted whose success is not recorded")
		}
	}
	w.settle()
	w.expectPods()
	w.job.Spec.Suspend = nil
	w.settle()
	w.expectPods("job-collector-0", "job-collector-2")
}

func TestTheFirstStatusOfAJobIsWrittenOnceItsPodsAreSeenWhereOtherJobsWait(t *testing.T) {
	w := newWorld(t, trainingJob())
	w.isBusy = true
	w.step()
	w.expectPhase("")
	w.step()
	w.expectPhase(v2alpha1.JobStarting)
	pending := conditions.Find(&w.job.Status, string(v2alpha1.JobPending))
	if pending == nil || pending.Status != corev1.ConditionFalse || pending.Reason != "JobPending" {
		t.Errorf("the condition of the phase before is %+v", pending)
	}
}

func TestAJobWhoseFirstPodsCannotBeCreatedIsPendingAtOnce(t *testing.T) {
	w := newWorld(t, trainingJob())
	w.isBusy = true
	w.fate = func() fate {
		w.fate = nil
		return refused
	}
	w.step()
	w.expectPhase(v2alpha1.JobPending)
}

// batch is how many pods of a task are created in one reconcile.
const batch = 64

func TestAJobOfManyPodsIsPendingUntilAllAreCreated(t *testing.T) {
	w := newWorld(t, manyWorkers(batch+1))
	w.step()
	w.expectPhase(v2alpha1.JobPending)
	w.step()
	w.expectPhase(v2alpha1.JobPending)
	w.step()
	w.expectPhase(v2alpha1.JobStarting)
}

func TestTheCountsOfASuspendedJobAreWrittenOnceAnInterval(t *testing.T) {
	w := settled(t, manyWorkers(3))
	w.job.Spec.Suspend = ptr.To(true)
	w.step()
	delete(w.pods, "job-collector-0")
	observed := w.observe()
	observed.Written = observed.Now.Add(-CountsInterval / 4)
	decision := Decide(observed)
	outcome := Conclude(&observed, &decision, &Effects{})
	if diff := cmp.Diff(observed.Job.Status, outcome.Status); diff != "" {
		t.Errorf("a count is written at once (-recorded +written):\n%s", diff)
	}
	if got, want := outcome.RequeueAfter, CountsInterval*3/4; got != want {
		t.Errorf("looked at again after %v, want %v", got, want)
	}
}

func TestALargeJobIsCreatedAPartAtATime(t *testing.T) {
	const size = 2*batch + 10
	w := newWorld(t, manyWorkers(size))
	for _, want := range []int{batch, 2 * batch, size} {
		if more := Decide(w.observe()).More; more != (want < size) {
			t.Fatalf("with %d pods to be made there are more: %v", want, more)
		}
		w.step()
		expect.MustEqual(t, "result", want, len(w.pods))
	}
	told := map[string]bool{}
	for _, pod := range w.pods {
		told[w.environmentOf(pod)[names.EnvDINodes]] = true
	}
	expect.Equal(t, "the pods of one job are told", 1, len(told))
}

// kindsOf counts pods by their task or role.
func kindsOf(pods []*corev1.Pod) map[string]int {
	kinds := map[string]int{}
	for _, pod := range pods {
		kinds[pod.Labels[names.LabelTaskName]+pod.Labels[names.LabelReplicaType]]++
	}
	return kinds
}

func TestPodsThatAreRefusedAreInTheWayOfNoOtherTask(t *testing.T) {
	spec := manyWorkers(2 * batch)
	spec.Tasks = append(spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner, Template: template})
	w := newWorld(t, spec)
	decision := Decide(w.observe())
	expect.Equal(t, "what is created", map[string]int{"collector": batch, "learner": 1}, kindsOf(decision.CreatePods))
	if !decision.More {
		t.Error("the other collectors are forgotten")
	}
}

func TestReplicasThatAreRefusedAreInTheWayOfNoOtherRoleAndNoService(t *testing.T) {
	w := led(t, ledJob())
	learner := w.current(w.ask(v2alpha1.TaskTypeLearner))[0]
	w.settle()
	delete(w.services, learner)
	early := w.membership.Spec.Members
	w.membership.Spec.Members = nil
	for range 2 * batch {
		w.ask(v2alpha1.TaskTypeCollector)
	}
	w.membership.Spec.Members = append(w.membership.Spec.Members, early...)
	w.ask(v2alpha1.TaskTypeLearner)
	decision := Decide(w.observe())
	expect.Equal(t, "what is created", map[string]int{"collector": batch, "learner": 1}, kindsOf(decision.CreatePods))
	if services := decision.CreateServices; len(services) != 1 || services[0].Name != learner {
		t.Errorf("the services that are created: %v", services)
	}
}
