// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// ranksOf returns the rank of each pod.
func (w *world) ranksOf() map[string]int32 {
	ranks := map[string]int32{}
	for name, pod := range w.pods {
		ranks[name] = podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
	}
	return ranks
}

func (w *world) expectRanks(want map[string]int32) {
	w.t.Helper()
	expect.MustEqual(w.t, "ranks", want, w.ranksOf())
}

// resize sets the count of collectors and settles the job.
func (w *world) resize(collectors int32) {
	w.t.Helper()
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(collectors) })
	w.settle()
}

// startedJob returns a world in which the training job runs.
func startedJob(t *testing.T) *world {
	t.Helper()
	w := allRunning(t, trainingJob())
	return w
}

func TestReplicasKeepTheirRanksWhenAJobThatWasResizedRestarts(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.resize(4)
	w.resize(2)
	w.resize(3)
	want := map[string]int32{
		"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-evaluator-0": 3, "job-collector-2": 4,
	}
	w.expectRanks(want)
	w.end("job-learner-0", 1)
	w.settle()
	expect.MustEqual(t, "restarts", 1, w.job.Status.Restarts)
	w.expectRanks(want)
	w.resize(4)
	want["job-collector-3"] = 5
	w.expectRanks(want)
}

func TestARestartClosesTheGapThatShrinkingLeft(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.resize(3)
	w.resize(1)
	w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-evaluator-0": 3})
	w.end("job-learner-0", 1)
	w.settle()
	w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-evaluator-0": 2})
}

func TestReplicasKeepTheirRanksWhenTheJobIsResizedWhileItRestarts(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.end("job-learner-0", 1)
	w.step()
	w.step()
	w.resize(3)
	w.expectRanks(map[string]int32{
		"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-evaluator-0": 3, "job-collector-2": 4,
	})
}

func TestARankThatSucceededStaysItsReplicasThoughAllPodsAreGone(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.resize(3)
	w.end("job-evaluator-0", 0)
	w.settle()
	clear(w.pods)
	w.settle()
	w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-collector-2": 4})
}

func TestARankThatSucceededIsNotGivenToAnother(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.end("job-collector-1", 0)
	w.settle()
	delete(w.pods, "job-collector-1")
	w.change(func(job *v2alpha1.DIJob) {
		job.Spec.Tasks[1].Replicas, job.Spec.Tasks[2].Replicas = ptr.To(int32(1)), ptr.To(int32(2))
	})
	w.settle()
	w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-evaluator-0": 3, "job-evaluator-1": 4})
}

// reorder reverses the order of the tasks, which keep their names.
func (w *world) reorder() {
	w.change(func(job *v2alpha1.DIJob) {
		for i := range job.Spec.Tasks {
			job.Spec.Tasks[i].Name = names.TaskName(&job.Spec.Tasks[i])
		}
		slices.Reverse(job.Spec.Tasks)
	})
}

func TestReplicasKeepTheirRanksThoughTheTasksAreReordered(t *testing.T) {
	t.Parallel()
	want := map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-evaluator-0": 3}
	for moment, comes := range map[string]func(*world){
		"while all run":              func(w *world) { w.reorder() },
		"while all pods are gone":    func(w *world) { clear(w.pods); w.reorder() },
		"while the job restarts":     func(w *world) { w.end("job-learner-0", 1); w.step(); w.step(); w.reorder() },
		"while the job is suspended": func(w *world) { w.suspend(true); w.settle(); w.reorder(); w.settle(); w.suspend(false) },
		"with a resize while suspended": func(w *world) {
			w.suspend(true)
			w.settle()
			w.reorder()
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To(int32(2)) })
			w.settle()
			w.suspend(false)
			w.settle()
			w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-evaluator-0": 3, "job-evaluator-1": 4})
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To(int32(1)) })
		},
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			w := startedJob(t)
			comes(w)
			w.settle()
			w.expectRanks(want)
		})
	}
}

func TestASuccessStaysItsReplicasThoughTheTasksAreReordered(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.end("job-learner-0", 0)
	w.settle()
	clear(w.pods)
	w.reorder()
	w.settle()
	w.expectRanks(map[string]int32{"job-collector-0": 1, "job-collector-1": 2, "job-evaluator-0": 3})
}

// TestRanksThatAStartClosesUpAreRecordedBeforeAPodIsMade guards against a reconcile that creates
// one of the pods and then exits. It would leave a pod and a record that contradict each other.
func TestRanksThatAStartClosesUpAreRecordedBeforeAPodIsMade(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.suspend(true)
	w.settle()
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(int32(1)) })
	w.suspend(false)
	for w.job.Status.Scaling.Ranks["evaluator"] != "2" {
		w.step()
		w.expectPods()
	}
	writes := 0
	w.fate = func() fate {
		if writes++; writes == 2 {
			return deadAfter
		}
		return written
	}
	w.step()
	w.fate = nil
	if made := len(w.pods); made == 0 || made == 3 {
		t.Fatalf("%d pods are made, want some", made)
	}
	w.settle()
	w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-evaluator-0": 2})
}

// TestAJobThatGoesOnElsewhereWhilePodsStillLeaveStartsInTheOrderOfItsAllocation covers an
// allocation that changes while the job is suspended.
func TestAJobThatGoesOnElsewhereWhilePodsStillLeaveStartsInTheOrderOfItsAllocation(t *testing.T) {
	t.Parallel()
	w := preemptibleWorld(t, "a", "a", "a", "a")
	w.suspend(true)
	w.step()
	delete(w.pods, "job-evaluator-0")
	w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = []string{"a", "a", "a", "b", "b"} })
	w.step()
	w.suspend(false)
	w.settle()
	w.expectRanks(map[string]int32{
		"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-collector-2": 3, "job-evaluator-0": 4,
	})
}

// suspend suspends or resumes the job.
func (w *world) suspend(isSuspended bool) {
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(isSuspended) })
}

func TestASuccessIsRecordedBeforeSuspendingDeletesItsPod(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.end("job-evaluator-0", 0)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.step()
	if pod := w.pod("job-evaluator-0"); podstate.Terminating(pod) || w.job.Status.CompletedRanks != "3" {
		t.Errorf("the pod is %s, completed ranks are %q", outlinePod(pod), w.job.Status.CompletedRanks)
	}
	w.settle()
	w.expectPods()
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-collector-1")
}

// TestHowReplicasEndedIsRecordedBeforeSuspendingDeletesThemBesideAnEarlierPod covers a pod of the
// first attempt that enters the cache only when the second runs.
func TestHowReplicasEndedIsRecordedBeforeSuspendingDeletesThemBesideAnEarlierPod(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		exitCode  int32
		restarts  int32
		completed string
	}{
		"one has succeeded": {0, 1, "1"}, "one has failed": {1, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startedJob(t)
			earlier := w.pod("job-evaluator-0").DeepCopy()
			w.end("job-learner-0", 1)
			w.settle()
			w.pods[earlier.Name] = earlier
			w.end("job-collector-0", tc.exitCode)
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
			w.settle()
			w.expectPods()
			w.expectPhase(v2alpha1.JobPending)
			if got := &w.job.Status; got.Restarts != tc.restarts || got.CompletedRanks != tc.completed {
				t.Errorf("restarts are %d, completed ranks %q", got.Restarts, got.CompletedRanks)
			}
		})
	}
}

// TestASucceededPodThatIsGoneBeforeItIsSeenIsMadeAgain documents an accepted limit: nothing records
// such a success.
func TestASucceededPodThatIsGoneBeforeItIsSeenIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.end("job-evaluator-0", 0)
	delete(w.pods, "job-evaluator-0")
	w.settle()
	if w.created["job-evaluator-0"] != 2 || w.job.Status.CompletedRanks != "" {
		t.Errorf("it was created %d times, completed ranks are %q", w.created["job-evaluator-0"], w.job.Status.CompletedRanks)
	}
}

func TestAPodThatItsNodeLostIsMadeAgainThoughItsFailureIsIgnored(t *testing.T) {
	t.Parallel()
	w := runningJob(t, 0, v2alpha1.FailurePolicyRule{Action: v2alpha1.FailurePolicyIgnore})
	w.pod("job-collector-0").Status.Phase = "Unknown"
	w.now = w.now.Add(5 * time.Second)
	w.settle()
	if w.created["job-collector-0"] != 2 || w.job.Status.Restarts != 0 {
		t.Errorf("it was created %d times, restarts are %d", w.created["job-collector-0"], w.job.Status.Restarts)
	}
}

// TestARankThatWasGivenTwiceIsSettled covers a second resize that is acted on before the pods of
// the first are in the cache.
func TestARankThatWasGivenTwiceIsSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, trainingJob())
	w.lag()
	// The job changes while its pods are created, so the patch is rejected.
	w.fate = func() fate {
		if len(w.pods) == 3 {
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To(int32(2)) })
			w.fate = nil
		}
		return written
	}
	w.step()
	w.hearOfJob()
	w.step()
	if ranks := w.ranksOf(); ranks["job-learner-1"] != 1 || ranks["job-collector-0"] != 1 {
		t.Fatalf("no rank was given twice: %v", ranks)
	}
	w.rest()
	expect.Equal(t, fmt.Sprintf("pods are %v", w.podNames()), 5, len(w.pods))
}

func TestAFailureIsCountedOnceWhateverBecomesOfTheWrite(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]fate{
		"the patch is refused": refused, "its answer is lost": unanswered,
		"the operator dies before it": deadBefore, "the operator dies after it": deadAfter,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startedJob(t)
			w.lag()
			w.toEnd("job-learner-0", 1)
			w.toEnd("job-collector-1", 1)
			w.hearOfPod("job-learner-0")
			w.fate = func() fate { return how }
			w.step()
			w.fate = nil
			// The event of the second failure arrives before that of the write.
			w.hearOfPod("job-collector-1")
			w.step()
			w.rest()
			expect.Equal(t, "restarts", 1, w.job.Status.Restarts)
		})
	}
}

func TestAnOperatorThatKnowsOfNoEndDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	w := startedJob(t)
	w.lag()
	for _, name := range w.podNames() {
		w.toEnd(name, 0)
		w.hearOfPod(name)
	}
	w.step()
	w.expectPhase(v2alpha1.JobSucceeded)
	clear(w.pods)
	for name := range w.cache.pods {
		w.hearOfPod(name)
	}
	w.step()
	w.expectPhase(v2alpha1.JobSucceeded)
	w.rest()
	w.expectPods()
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(int32(7)) })
	w.rest()
	w.expectPods()
}

// TestAnOperatorMayDieAtAnyWrite plays the life of a job in which a replica fails and the size
// changes, once for each write and each outcome of that write.
func TestAnOperatorMayDieAtAnyWrite(t *testing.T) {
	t.Parallel()
	for _, isPreemptible := range []bool{false, true} {
		for _, how := range []fate{refused, unanswered, deadBefore, deadAfter} {
			t.Run(fmt.Sprintf("preemptible %v, each write ends as %d", isPreemptible, how), func(t *testing.T) {
				t.Parallel()
				for at := 0; liveThrough(t, isPreemptible, at, how) > at; at++ {
					if at > 100 {
						t.Fatal("there is no end to the writes")
					}
				}
			})
		}
	}
}

// liveThrough plays that life and returns the number of writes.
func liveThrough(t *testing.T, isPreemptible bool, at int, how fate) int {
	t.Helper()
	spec := trainingJob()
	spec.Preemptible = isPreemptible
	w := newWorld(t, spec)
	w.job.Status.Allocation = []string{"a", "a", "b", "b"}
	w.lag()
	writes := 0
	w.fate = func() fate {
		writes++
		if writes == at+1 {
			return how
		}
		return written
	}
	run := func() {
		w.rest()
		for _, name := range w.podNames() {
			w.toRun(name)
		}
		w.rest()
		w.expectPhase(v2alpha1.JobRunning)
	}
	run()
	w.toEnd("job-collector-0", 1)
	w.toEnd("job-learner-0", 1)
	run()
	w.change(func(job *v2alpha1.DIJob) {
		job.Spec.Tasks[1].Replicas = ptr.To(int32(3))
		job.Status.Allocation = []string{"a", "b", "b", "b", "b"}
	})
	run()
	for _, name := range w.podNames() {
		w.toEnd(name, 0)
	}
	w.rest()
	w.expectPhase(v2alpha1.JobSucceeded)
	status := &w.job.Status
	reschedules := int32(0)
	if isPreemptible {
		reschedules = 1
	}
	if status.Restarts != 1 || status.Reschedules != reschedules || len(w.created) != 5 {
		t.Fatalf("write %d: restarts are %d, reschedules %d, pods %v", at, status.Restarts, status.Reschedules, w.podNames())
	}
	return writes
}

// TestALostNodeMovesAPreemptibleJobOnce covers pods that exit with 143, fail or disappear, in any
// order with the event of the new placement. Only the reschedule is counted.
func TestALostNodeMovesAPreemptibleJobOnce(t *testing.T) {
	t.Parallel()
	leave := map[string]func(*world, string){
		"they save their work and leave": func(w *world, name string) { w.end(name, state.ExitTerminated) },
		"they are deleted":               func(w *world, name string) { w.terminate(name) },
		"they fail as they are deleted":  func(w *world, name string) { w.terminate(name); w.end(name, 1) },
		"they are gone":                  func(w *world, name string) { delete(w.pods, name) },
		"they are disrupted": func(w *world, name string) {
			w.end(name, 137)
			w.pod(name).Status.Conditions = disrupted()
		},
	}
	for how, goes := range leave {
		for _, isNewsFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the place is known first: %v", how, isNewsFirst), func(t *testing.T) {
				t.Parallel()
				w := preemptibleWorld(t, "a", "a", "b", "b")
				w.lag()
				goes(w, "job-collector-1")
				goes(w, "job-evaluator-0")
				if isNewsFirst {
					w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = []string{"a", "a", "a", "a"} })
					w.hearOfJob()
				} else {
					w.hearOfPod("job-evaluator-0")
					w.step()
					w.hearOfJob()
					w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = []string{"a", "a", "a", "a"} })
				}
				w.step()
				w.rest()
				w.expectReschedules(1)
				if w.job.Status.Restarts != 0 || len(w.pods) != 4 {
					t.Errorf("restarts are %d, pods %v", w.job.Status.Restarts, w.podNames())
				}
				for name, pod := range w.pods {
					expect.Equal(t, name+" is placed on", "a", placements.PlacedOn(pod))
				}
			})
		}
	}
}

// TestAPlacedJobStartsInTheOrderOfItsAllocation checks that replicas are in the order of the spec,
// as the allocator assumes, regardless of their earlier ranks.
func TestAPlacedJobStartsInTheOrderOfItsAllocation(t *testing.T) {
	t.Parallel()
	w := preemptibleWorld(t)
	w.job.Status.Allocation = []string{"a", "b", "c", "d", "e", "f"}
	w.settle()
	places := map[string]string{}
	for name, pod := range w.pods {
		places[name] = placements.PlacedOn(pod)
	}
	want := map[string]string{
		"job-learner-0": "a", "job-collector-0": "b", "job-collector-1": "c", "job-collector-2": "d", "job-collector-3": "e", "job-evaluator-0": "f",
	}
	expect.Equal(t, "places", want, places)
}
