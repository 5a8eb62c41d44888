// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

func TestAPodThatDoesNotGoIsToldThoughNoEventComes(t *testing.T) {
	for name, hold := range map[string]func(w *world){
		"of a job that runs": func(*world) {},
		"of a job that restarts": func(w *world) {
			w.end("job-learner-0", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := startedJob(t)
			pod := w.pod("job-collector-0")
			pod.Spec.NodeName = "dead"
			going := metav1.NewTime(w.now.Add(30 * time.Second))
			pod.DeletionTimestamp = &going
			hold(w)
			for range 5 {
				w.step()
			}
			if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasStalled) {
				t.Fatal("it is told before its grace period is over")
			}
			decision := Decide(w.observe())
			if due := w.now.Add(decision.RequeueAfter); decision.RequeueAfter == 0 || due.After(going.Add(podstate.TerminatingGracePeriod)) {
				t.Fatalf("the job is looked at again in %s", decision.RequeueAfter)
			}
			w.now = going.Add(podstate.TerminatingGracePeriod)
			w.step()
			stalled := conditions.Find(&w.job.Status, v2alpha1.ConditionReplicasStalled)
			if stalled == nil || stalled.Reason != v2alpha1.ReasonTerminating || !strings.Contains(stalled.Message, "job-collector-0 (collector)") ||
				!strings.Contains(stalled.Message, "node dead") {
				t.Fatalf("the condition is %+v", stalled)
			}
			running := conditions.Find(&w.job.Status, string(v2alpha1.JobRunning))
			if running.Status == corev1.ConditionTrue && running.Message != "not all 4 replicas are ready" {
				t.Errorf("the job says %q", running.Message)
			}
			delete(w.pods, "job-collector-0")
			for range 5 {
				w.step()
				w.reap()
			}
			w.run(w.podNames()...)
			w.step()
			running = conditions.Find(&w.job.Status, string(v2alpha1.JobRunning))
			if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasStalled) || running.Message != "all 4 replicas are ready" {
				t.Errorf("with all ready the job says %q and %+v", running.Message, w.job.Status.Conditions)
			}
		})
	}
}

// unplaced makes the scheduler find no node for pods.
func (w *world) unplaced(podNames ...string) {
	for _, name := range podNames {
		pod := w.pod(name)
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
		}}}
	}
}

// waitsFor sets why the kubelet waits before it starts the container of a pod.
func (w *world) waitsFor(name, reason, message string) {
	pod := w.pod(name)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "di-container", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

// crashed sets a container that crashed for the nth time. While it runs again, it is ready.
func (w *world) crashed(name string, restarts int32, runs bool, words string) {
	pod := w.pod(name)
	end := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 1, Reason: "Error", Message: words, StartedAt: metav1.NewTime(w.now.Add(-time.Second)), FinishedAt: metav1.NewTime(w.now),
	}}
	status := corev1.ContainerStatus{Name: "di-container", RestartCount: restarts, LastTerminationState: end}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	if runs {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}
		pods.Ready(pod)
	} else {
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
}

// stalled returns the condition's status, reason and message.
func (w *world) stalled() []string {
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionReplicasStalled)
	if condition == nil {
		return nil
	}
	return []string{string(condition.Status), condition.Reason, condition.Message}
}

func (w *world) expectStalled(want ...string) {
	w.t.Helper()
	expect.MustEqual(w.t, "the condition", want, w.stalled())
}

// told counts the events of a reason.
func (w *world) told(reason string) int {
	count := 0
	for _, event := range w.events {
		if event == reason {
			count++
		}
	}
	return count
}

func TestAJobSaysThatItsPodsDoNotGetOnUntilTheyDo(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.expectStalled()
		w.unplaced(pod)
		w.settle()
		role := map[string]string{coordinator: "coordinator", "job-collector-0": "collector"}[pod]
		w.expectStalled("True", "Unschedulable", pod+" ("+role+"): cannot be scheduled: no node is available: Insufficient nvidia.com/gpu")
		w.run(pod)
		w.settle()
		w.expectStalled("False", "", "")
		expect.Equal(t, fmt.Sprintf("events are %v", w.events), 1, w.told("Unschedulable"))
	})
}

func TestAJobThatIsOverOrSuspendedIsNotStalled(t *testing.T) {
	for name, stop := range map[string]func(*world) string{
		"suspended": func(w *world) string {
			w.job.Spec.Suspend = ptr.To(true)
			return ""
		},
		"finished": func(w *world) string {
			was := "until the job failed: " + w.stalled()[2]
			w.job.Spec.CleanPodPolicy = v2alpha1.CleanPodPolicyNone
			w.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(1))
			w.now = w.now.Add(time.Minute)
			return was
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachLifecycle(t, func(t *testing.T, w *world, pod string) {
				t.Helper()
				w.unplaced(pod)
				w.settle()
				if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasStalled) {
					t.Fatalf("the condition is %v", w.stalled())
				}
				message := stop(w)
				w.settle()
				w.expectStalled("False", "", message)
			})
		})
	}
}

func TestTheMostSeriousPodsAreNamedFirstAndTheOthersCounted(t *testing.T) {
	w := newWorld(t, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(5)), Template: template},
		{Type: v2alpha1.TaskTypeLearner, Template: template},
	}})
	w.settle()
	w.unplaced("job-collector-0", "job-collector-1", "job-collector-2", "job-collector-3", "job-collector-4")
	w.waitsFor("job-learner-0", "CreateContainerConfigError", `secret "wandb" not found`)
	w.settle()
	const unplaced = "cannot be scheduled: no node is available: Insufficient nvidia.com/gpu"
	w.expectStalled("True", "ContainerConfig",
		"job-learner-0 (learner): container di-container cannot be configured: secret 'wandb' not found; "+
			"job-collector-0 (collector): "+unplaced+"; job-collector-1 (collector): "+unplaced+"; and 3 more pods")

	w.pod("job-learner-0").Status = corev1.PodStatus{}
	w.run("job-learner-0")
	w.settle()
	if reason := w.stalled()[1]; reason != "Unschedulable" || w.told("Unschedulable") != 1 {
		t.Errorf("the reason is %q and events are %v, want Unschedulable once", reason, w.events)
	}
	w.run("job-collector-3")
	w.settle()
	if message := w.stalled()[2]; !strings.HasSuffix(message, "; and 1 more pod") || w.told("Unschedulable") != 1 {
		t.Errorf("the message is %q and events are %v, want no further one", message, w.events)
	}
}

func TestTheKubeletsTriesAreToldOnce(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.waitsFor(pod, "ImagePullBackOff", `Back-off pulling image "image"`)
		w.settle()
		if message := w.stalled()[2]; strings.Contains(message, "saying") {
			t.Fatalf("the message is %q before the kubelet gave a cause", message)
		}
		w.waitsFor(pod, "ErrImagePull", "image: not found, try 1")
		w.settle()
		message := w.stalled()[2]
		if !strings.HasSuffix(message, `cannot be pulled, saying "image: not found, try 1"`) {
			t.Fatalf("the message is %q, want the cause", message)
		}
		for range 5 {
			w.waitsFor(pod, "ImagePullBackOff", `Back-off pulling image "image"`)
			w.expectNoChange()
			w.waitsFor(pod, "ErrImagePull", "image: not found, try 2")
			w.expectNoChange()
		}
		expect.Equal(t, fmt.Sprintf("events are %v", w.events), 1, w.told("ImagePull"))
	})
}

// expectNoChange expects no write.
func (w *world) expectNoChange() {
	w.t.Helper()
	if w.step() {
		w.t.Fatalf("the status is written, as %+v", w.job.Status)
	}
}

func TestACrashLoopIsToldOnceUntilItIsOver(t *testing.T) {
	w := led(t, ledJob())
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	pod := w.current(slot)[0]
	w.run(pod)
	w.settle()
	ready := w.job.Status.ReadyReplicas

	w.crashed(pod, 2, false, "RuntimeError: 1")
	w.settle()
	w.expectStalled("True", "CrashLoop",
		pod+` (collector): container di-container crashes repeatedly: exit code 1, restarted 2+ times, saying "RuntimeError: 1"`)
	for range 3 {
		w.crashed(pod, 3, true, "RuntimeError: 2")
		w.expectNoChange()
		w.crashed(pod, 4, false, "RuntimeError: 3")
		w.expectNoChange()
	}
	expect.Equal(t, "result", ready-1, w.job.Status.ReadyReplicas)
	w.crashed(pod, 5, true, "RuntimeError: 4")
	w.settle()
	if message := w.stalled()[2]; !strings.Contains(message, `restarted 5+ times, saying "RuntimeError: 4"`) {
		t.Errorf("the message is %q, want the count's next step and what goes with it", message)
	}
	expect.Equal(t, fmt.Sprintf("events are %v", w.events), 1, w.told("CrashLoop"))

	decision := Decide(w.observe())
	w.now = w.now.Add(decision.RequeueAfter)
	w.settle()
	w.expectStalled("False", "", "")
	if decision.RequeueAfter > podstate.StableAfter || w.job.Status.ReadyReplicas != ready {
		t.Errorf("looked at again after %v, then %d replicas are ready, want %d", decision.RequeueAfter, w.job.Status.ReadyReplicas, ready)
	}
}

func TestAPodThatIsDeletedAnywayIsNotSpokenOf(t *testing.T) {
	w := newWorld(t, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: template},
	}})
	w.settle()
	w.run("job-collector-0")
	w.settle()
	w.unplaced("job-collector-1")
	w.job.Status.Replicas = 1
	w.settle()
	w.expectStalled()
	if slices.Contains(w.events, "Unschedulable") {
		t.Errorf("events are %v", w.events)
	}
}
