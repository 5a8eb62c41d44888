// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// lifecycles returns a running job of each kind, with one pod that decides its result.
func lifecycles() map[string]func(*testing.T) (w *world, pod string) {
	return map[string]func(*testing.T) (*world, string){
		"led by its coordinator": func(t *testing.T) (*world, string) {
			t.Helper()
			w := led(t, ledJob())
			w.ask(v2alpha1.TaskTypeCollector)
			w.settle()
			return w, coordinator
		},
		"led by its workers": func(t *testing.T) (*world, string) {
			t.Helper()
			w := newWorld(t, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Template: template}}})
			w.job.CreationTimestamp = metav1.NewTime(w.now)
			w.settle()
			w.run("job-collector-0")
			w.settle()
			return w, "job-collector-0"
		},
	}
}

func eachLifecycle(t *testing.T, check func(t *testing.T, w *world, pod string)) {
	t.Helper()
	for name, start := range lifecycles() {
		t.Run(name, func(t *testing.T) {
			w, pod := start(t)
			check(t, w, pod)
		})
	}
}

func TestAJobThatIsDeletedAndHeldGivesItsPodsBackAndSaysWhoHoldsIt(t *testing.T) {
	for name, prepare := range map[string]func(*world, string){
		"live": func(*world, string) {},
		"finished, and keeping its pods": func(w *world, pod string) {
			w.job.Spec.CleanPodPolicy = v2alpha1.CleanPodPolicyNone
			w.end(pod, 0)
			w.settle()
		},
		"suspended": func(w *world, _ string) { w.job.Spec.Suspend = ptr.To(true) },
	} {
		t.Run(name, func(t *testing.T) {
			eachLifecycle(t, func(t *testing.T, w *world, pod string) {
				t.Helper()
				prepare(w, pod)
				finished := state.IsFinished(&w.job.Status)
				w.job.Finalizers = []string{"example.com/archive", metav1.FinalizerDeleteDependents, "example.com/bill"}
				w.job.DeletionTimestamp, w.job.Generation = &metav1.Time{Time: w.now}, w.job.Generation+1
				w.settle()
				w.expectPods()
				said := conditions.Find(&w.job.Status, v2alpha1.ConditionTerminating)
				if said == nil || said.Status != corev1.ConditionTrue || !strings.Contains(said.Message, "hold it: example.com/archive, example.com/bill.") {
					t.Errorf("the condition is %+v", said)
				}
				status := &w.job.Status
				expect.Equal(t, "ready", int32(0), status.ReadyReplicas)
				expect.Equal(t, "observed generation", w.job.Generation, status.ObservedGeneration)
				expect.Equal(t, "finished", finished, state.IsFinished(status))
				if !finished {
					expect.Equal(t, "reason", v2alpha1.ReasonHeldByFinalizer, status.Summary.Reason)
					w.expectPhase(v2alpha1.JobPending)
				}
			})
		})
	}
}

func TestADeletedJobThatNobodyHoldsIsLeftAlone(t *testing.T) {
	for name, finalizers := range map[string][]string{
		"in the foreground":                             {metav1.FinalizerDeleteDependents},
		"its pods are orphaned":                         {metav1.FinalizerOrphanDependents},
		"orphans of a job that another finalizer holds": {"example.com/archive", metav1.FinalizerOrphanDependents},
	} {
		t.Run(name, func(t *testing.T) {
			eachLifecycle(t, func(t *testing.T, w *world, _ string) {
				t.Helper()
				before, status := w.podNames(), w.job.Status.DeepCopy()
				w.job.Finalizers, w.job.DeletionTimestamp = finalizers, &metav1.Time{Time: w.now}
				w.settle()
				w.expectPods(before...)
				expect.Equal(t, "status", *status, w.job.Status)
			})
		})
	}
}

func TestASuspendedJobHasNoPodsAndStartsAfreshWhenResumed(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.job.Spec.Suspend = ptr.To(true)
		w.settle()
		w.expectPods()
		w.expectPhase(v2alpha1.JobPending)
		if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionSuspended) || w.membership != nil || len(w.services) > 0 {
			t.Errorf("conditions are %+v, the list %v, services %v", w.job.Status.Conditions, w.membership, w.services)
		}

		w.job.Spec.Suspend = ptr.To(false)
		w.settle()
		w.expectPods(pod)
		w.run(pod)
		w.settle()
		w.expectPhase(v2alpha1.JobRunning)
		if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionSuspended) || w.job.Status.Restarts != 0 {
			t.Errorf("conditions are %+v, restarts %d", w.job.Status.Conditions, w.job.Status.Restarts)
		}
		if !slices.Contains(w.events, "Suspended") || !slices.Contains(w.events, "Resumed") {
			t.Errorf("events are %v", w.events)
		}
	})
}

func TestAFinishedJobIsNotSuspended(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.end(pod, 0)
		w.job.Spec.Suspend = ptr.To(true)
		w.settle()
		w.expectPhase(v2alpha1.JobSucceeded)
	})
}

func TestAJobThatIsActiveTooLongFails(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, _ string) {
		t.Helper()
		w.job.Spec.ActiveDeadlineSeconds = ptr.To[int64](600)
		w.job.CreationTimestamp = metav1.NewTime(w.now)
		if left := Decide(w.observe()).RequeueAfter; left <= 0 || left > 10*time.Minute {
			t.Errorf("it is looked at again after %v", left)
		}
		w.now = w.now.Add(11 * time.Minute)
		w.settle()
		w.expectPhase(v2alpha1.JobFailed)
		if failure := w.job.Status.LastFailure; failure == nil || failure.Reason != "DeadlineExceeded" {
			t.Errorf("the last failure is %+v", failure)
		}
		for name, pod := range w.pods {
			if pod.Status.Phase == corev1.PodRunning {
				t.Errorf("pod %s still runs", name)
			}
		}
	})
}

func TestTheTimeInSuspensionIsNotActive(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.job.Spec.ActiveDeadlineSeconds = ptr.To[int64](600)
		w.job.CreationTimestamp = metav1.NewTime(w.now)
		w.job.Spec.Suspend = ptr.To(true)
		w.settle()
		w.now = w.now.Add(time.Hour)
		w.settle()
		w.expectPhase(v2alpha1.JobPending)
		w.job.Spec.Suspend = nil
		w.settle()
		w.expectPods(pod)
		w.now = w.now.Add(11 * time.Minute)
		w.settle()
		w.expectPhase(v2alpha1.JobFailed)
	})
}

func TestAFinishedJobIsKeptForItsTimeAndDeleted(t *testing.T) {
	eachLifecycle(t, func(t *testing.T, w *world, pod string) {
		t.Helper()
		w.job.Spec.TTLSecondsAfterFinished = ptr.To[int32](60)
		w.end(pod, 0)
		w.settle()
		decision := Decide(w.observe())
		if decision.DeleteJob || decision.RequeueAfter <= 0 || decision.RequeueAfter > time.Minute {
			t.Errorf("delete %v, looked at again after %v", decision.DeleteJob, decision.RequeueAfter)
		}
		w.now = w.now.Add(time.Minute)
		if !Decide(w.observe()).DeleteJob {
			t.Error("the job is not deleted")
		}
	})
}
