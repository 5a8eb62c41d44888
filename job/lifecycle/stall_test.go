// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// newStalledWorld returns the world of a job of a learner that cannot be scheduled and of two collectors that run.
func newStalledWorld(t *testing.T, change func(*v2alpha1.DIJobSpec)) *world {
	t.Helper()
	spec := v2alpha1.DIJobSpec{BackoffLimit: ptr.To(int32(0)), Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeLearner, Template: template},
		{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: template},
	}}
	if change != nil {
		change(&spec)
	}
	w := settled(t, spec)
	w.run("job-collector-0", "job-collector-1")
	w.unplaced("job-learner-0")
	w.settle()
	w.now = w.now.Add(10 * time.Minute)
	return w
}

// giveUp ends a collector as one that has no answer of the learner.
func (w *world) giveUp(name string) {
	w.end(name, 1)
	w.pod(name).Status.ContainerStatuses[0].State.Terminated.Message = "Traceback:\n  join()\nleader: no answer for 5m0s"
}

func (w *world) condition(kind string) v2alpha1.DIJobCondition {
	if found := conditions.Find(&w.job.Status, kind); found != nil {
		return *found
	}
	return v2alpha1.DIJobCondition{}
}

func TestAPeerThatGivesUpOnAStalledReplicaIsDisrupted(t *testing.T) {
	w := newStalledWorld(t, nil)
	for range 3 {
		w.giveUp("job-collector-1")
		w.settle()
		w.now = w.now.Add(10 * time.Minute)
		w.settle()
		w.run("job-collector-1")
		w.settle()
	}
	expect.Equal(t, "restarts", int32(0), w.job.Status.Restarts)
	w.expectPhase(v2alpha1.JobStarting)
	disrupted := w.condition(v2alpha1.ConditionReplicasDisrupted)
	expect.Equal(t, "reason", v2alpha1.ReasonPeerStalled, disrupted.Reason)
	if !strings.HasPrefix(disrupted.Message, "pod job-collector-1 has failed (exit code 1) while another replica could not start; recreating") {
		t.Errorf("the condition says %q", disrupted.Message)
	}
	expect.Equal(t, "reason of the job", v2alpha1.ReasonUnschedulable, w.job.Status.Summary.Reason)
}

func TestAJobThatFailsAsItIsSuspendedNamesTheStallFirst(t *testing.T) {
	w := settled(t, v2alpha1.DIJobSpec{BackoffLimit: ptr.To(int32(0)), Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeLearner, Template: template}, {Type: v2alpha1.TaskTypeCollector, Template: template},
	}})
	w.run("job-collector-0")
	w.settle()
	w.unplaced("job-learner-0")
	w.now = w.now.Add(10 * time.Minute)
	w.end("job-collector-0", 137)
	w.pod("job-collector-0").Status.ContainerStatuses[0].State.Terminated.Reason = v2alpha1.ReasonOOMKilled
	w.suspend(true)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	if said := w.job.Status.LastFailure.Message; !strings.Contains(said, "was Unschedulable for ") || !strings.Contains(said, "then pod job-collector-0 has failed") {
		t.Errorf("the last failure says %q", said)
	}
}

func TestPeersThatGiveUpAtOnceAreRecreatedEverMoreSlowly(t *testing.T) {
	w := newStalledWorld(t, nil)
	start, before := w.now, w.created["job-collector-0"]
	for w.now.Sub(start) < time.Hour {
		if pod := w.pods["job-collector-0"]; pod != nil && pod.Status.Phase != corev1.PodFailed {
			w.giveUp("job-collector-0")
		}
		w.step()
		w.reap()
	}
	if created := w.created["job-collector-0"] - before; created < 10 || created > 25 {
		t.Errorf("the collector was recreated %d times in an hour", created)
	}
}

func TestAPeerThatWaitsForItsBackoffIsRecreatedOnceTheStallEnds(t *testing.T) {
	w := newStalledWorld(t, nil)
	for range 2 {
		w.giveUp("job-collector-1")
		w.step()
		w.reap()
		w.step()
	}
	w.giveUp("job-collector-1")
	w.step()
	expect.MustEqual(t, "the phase of the pod that waits", corev1.PodFailed, w.pod("job-collector-1").Status.Phase)
	w.pod("job-learner-0").Status = corev1.PodStatus{}
	w.run("job-learner-0")
	w.settle()
	w.run("job-collector-1")
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	expect.Equal(t, "restarts", int32(0), w.job.Status.Restarts)
	// From now on a failure counts.
	w.giveUp("job-collector-1")
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	expect.Equal(t, "reason", v2alpha1.ReasonError, w.job.Status.Summary.Reason)
}

func TestPeersOfAReplicaThatCannotBeCreatedAreDisrupted(t *testing.T) {
	for reason, isStall := range map[string]bool{
		v2alpha1.ReasonQuotaExceeded: true, v2alpha1.ReasonLimitRangeViolation: true, v2alpha1.ReasonResourcesMissing: true, v2alpha1.ReasonPodSecurityViolation: true, v2alpha1.ReasonFailedCreate: true, v2alpha1.ReasonFailedDelete: false,
	} {
		w := newStalledWorld(t, nil)
		delete(w.pods, "job-learner-0")
		conditions.Clear(&w.job.Status, v2alpha1.ConditionReplicasStalled, w.now)
		conditions.Set(&w.job.Status, v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue, reason, "pod job-learner-0 (learner) is refused: no", w.now)
		w.giveUp("job-collector-0")
		decision := Decide(w.observe())
		expect.Equal(t, reason+": the job ends", !isStall, decision.Status.Phase == v2alpha1.JobFailed)
	}
}

func TestAJobThatEndsWhileAReplicaIsStalledKeepsTheFirstCause(t *testing.T) {
	const cause = "job-learner-0 (learner) was Unschedulable for 10m: cannot be scheduled: no node is available: Insufficient nvidia.com/gpu"
	for name, tc := range map[string]struct {
		change     func(*v2alpha1.DIJobSpec)
		end        func(*world)
		wantReason string
		wantThen   string
		wantWords  string
	}{
		"by a rule of its failure policy": {
			change: func(spec *v2alpha1.DIJobSpec) {
				spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyFailJob}}}
			},
			end:        func(w *world) { w.giveUp("job-collector-1") },
			wantReason: v2alpha1.ReasonUnschedulable, wantThen: "pod job-collector-1 has failed (exit code 1), which fails the job by rule 0 of its failurePolicy",
			wantWords: "Traceback:\n  join()\nleader: no answer for 5m0s",
		},
		"by its deadline": {
			end:        func(w *world) { w.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(60)) },
			wantReason: v2alpha1.ReasonDeadlineExceeded, wantThen: "the job exceeded its deadline of 60 seconds",
			wantWords: "the job exceeded its deadline of 60 seconds",
		},
		"by a failure that has nothing to do with it": {
			end: func(w *world) {
				w.end("job-collector-1", 137)
				w.pod("job-collector-1").Status.ContainerStatuses[0].State.Terminated.Reason = v2alpha1.ReasonOOMKilled
			},
			wantReason: v2alpha1.ReasonOOMKilled, wantThen: "pod job-collector-1 has failed (exit code 137, OOMKilled) after 0 restarts, the limit is 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStalledWorld(t, tc.change)
			tc.end(w)
			w.settle()
			w.expectPhase(v2alpha1.JobFailed)
			expectFirstCause(t, w, cause, tc.wantReason, tc.wantThen, tc.wantWords)
			w.now = w.now.Add(time.Hour)
			w.settle()
			expectFirstCause(t, w, cause, tc.wantReason, tc.wantThen, tc.wantWords)
		})
	}
}

// expectFirstCause checks what a failed job says about the stall of a replica.
func expectFirstCause(t *testing.T, w *world, cause, reason, then, words string) {
	t.Helper()
	status := &w.job.Status
	expect.Equal(t, "message", cause+"; then "+then, w.condition(string(v2alpha1.JobFailed)).Message)
	expect.Equal(t, "event", cause+"; then "+then, w.lastEvents[w.condition(string(v2alpha1.JobFailed)).Reason])
	expect.Equal(t, "reason", reason, status.Summary.Reason)
	expect.Equal(t, "last failure", strings.TrimSuffix(cause+"\nthen "+then+"\n"+words, "\n"), status.LastFailure.Message)
	stalled := w.condition(v2alpha1.ConditionReplicasStalled)
	if stalled.Status != corev1.ConditionFalse || !strings.HasPrefix(stalled.Message, "until the job failed: job-") {
		t.Errorf("the condition is %+v", stalled)
	}
}

func TestACoordinatorThatGivesUpOnAStalledCollectorKeepsTheFirstCause(t *testing.T) {
	w := led(t, ledJob())
	collector := w.current(w.ask(v2alpha1.TaskTypeCollector))[0]
	w.settle()
	w.unplaced(collector)
	w.settle()
	w.now = w.now.Add(10 * time.Minute)
	w.giveUp(coordinator)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	expectFirstCause(t, w, collector+" (collector) was Unschedulable for 10m: cannot be scheduled: no node is available: Insufficient nvidia.com/gpu",
		v2alpha1.ReasonUnschedulable, "coordinator "+coordinator+" has failed", "Traceback:\n  join()\nleader: no answer for 5m0s")
}

func TestNoConditionKeepsASentenceOfWhenItWasTrue(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		// A release before stored the messages.
		for i := range w.job.Status.Conditions {
			if found := &w.job.Status.Conditions[i]; found.Status == corev1.ConditionFalse {
				found.Message = "pods are created, 3 replicas are desired"
			}
		}
		w.settle()
		for _, found := range w.job.Status.Conditions {
			if found.Status == corev1.ConditionFalse && found.Message != "" {
				t.Errorf("condition %s is False: %q", found.Type, found.Message)
			}
		}
	})
}

func TestAGatedPodIsNamedAndChangesNothing(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.run(w.podNames()...)
		w.pod(pod).Status = corev1.PodStatus{Phase: corev1.PodPending}
		w.pod(pod).Spec.NodeName = ""
		w.pod(pod).Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
		w.pod(pod).CreationTimestamp.Time = w.now
		w.pod(pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
		w.settle()
		expect.Equal(t, "reason at first", "", w.job.Status.Summary.Reason)
		w.now = w.now.Add(time.Hour)
		w.settle()
		expect.Equal(t, "reason", v2alpha1.ReasonSchedulingGated, w.job.Status.Summary.Reason)
		if got := w.condition(v2alpha1.ConditionReplicasNotReady); !strings.HasSuffix(got.Message, "waits behind scheduling gate example.com/wait") {
			t.Errorf("the condition is %+v", got)
		}
		w.expectStalled()
		w.pod(pod).Spec.SchedulingGates = nil
		w.run(pod)
		w.settle()
		expect.Equal(t, "reason of the job that runs", "", w.job.Status.Summary.Reason)
		expect.Equal(t, "condition", "", w.condition(v2alpha1.ConditionReplicasNotReady).Message)
	})
}
