// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// preemptibleWorld returns a world with a preemptible job that the allocator
// has placed on nodes by rank.
func preemptibleWorld(t *testing.T, nodes ...string) *world {
	t.Helper()
	spec := trainingJob()
	spec.Preemptible = true
	w := newWorld(t, spec)
	w.job.Status.Allocation = nodes
	w.settle()
	w.run(w.podNames()...)
	w.settle()
	return w
}

func (w *world) expectReschedules(want int32) {
	w.t.Helper()
	if got := w.job.Status.Reschedules; got != want {
		w.t.Fatalf("reschedules are %d, want %d", got, want)
	}
}

func TestAPreemptibleJobHasNoPodsBeforeItIsPlaced(t *testing.T) {
	w := preemptibleWorld(t)
	w.expectPods()
	w.expectPhase(v2alpha1.JobPending)
	if got := conditions.Find(&w.job.Status, string(v2alpha1.JobPending)).Message; got != "the job waits for the allocator to place it" {
		t.Errorf("the condition says %q", got)
	}
	w.job.Status.Allocation = []string{"a", "a", "b"}
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-evaluator-0")
	w.expectReschedules(0)
	expect.Equal(t, "the third rank is placed on", "b", w.pod("job-evaluator-0").Annotations[names.AnnotationNode])
}

func TestAnotherAllocationStartsAllReplicasAnewOnce(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.expectPhase(v2alpha1.JobRunning)
	w.expectReschedules(0)
	w.job.Status.Allocation = []string{"a", "c", "c", "c", "c", "c"}
	w.step()
	w.expectPhase(v2alpha1.JobRescheduling)
	w.settle()
	w.expectReschedules(1)
	w.expectPods("job-learner-0", "job-collector-0", "job-collector-1", "job-collector-2", "job-collector-3", "job-evaluator-0")
	for name, pod := range w.pods {
		if id := w.environmentOf(pod)[names.EnvDIJobID]; id != "space.job.1" {
			t.Errorf("pod %s has job id %s", name, id)
		}
	}
	w.run(w.podNames()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.expectReschedules(1)
	if w.job.Status.Restarts != 0 || w.job.Status.Replicas != 6 {
		t.Errorf("restarts are %d, replicas %d", w.job.Status.Restarts, w.job.Status.Replicas)
	}
}

func TestAJobThatLosesItsPlaceWaitsForAnother(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.job.Status.Allocation = nil
	w.settle()
	w.expectPods()
	w.expectPhase(v2alpha1.JobPending)
	w.expectReschedules(1)
	w.job.Status.Allocation = []string{"b", "b", "b"}
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-evaluator-0")
	w.expectReschedules(1)
}

func TestAReplicaThatSavedItsWorkAndLeftComesBackWhereItWas(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.end("job-collector-1", state.ExitTerminated)
	w.settle()
	w.expectReschedules(0)
	if got := w.pod("job-collector-1").Annotations[names.AnnotationNode]; got != "a" || w.created["job-collector-1"] != 2 {
		t.Errorf("it is placed on %q, created %d times", got, w.created["job-collector-1"])
	}
}

func TestAPlacedJobsTotalIsTheAllocatorsWhateverIsWrittenIntoItsStatus(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.job.Status.Replicas = 9
	w.job.Spec.Tasks[1].Replicas = ptr.To(int32(5))
	w.settle()
	if len(w.pods) != 4 || w.job.Status.Replicas != 4 {
		t.Errorf("%d pods, replicas %d", len(w.pods), w.job.Status.Replicas)
	}
	w.expectReschedules(0)
}

func TestPodsOfAnEarlierReleaseStayWhereTheAllocatorFindsThem(t *testing.T) {
	for name, tc := range map[string]struct {
		allocation  []string
		reschedules int32
	}{
		"it is placed where it runs": {[]string{"a", "a", "a", "a"}, 0},
		"it is placed elsewhere":     {[]string{"a", "b", "b", "b"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, trainingJob())
			for _, pod := range w.pods {
				pod.Spec.NodeName = "a"
			}
			w.run(w.podNames()...)
			w.settle()
			w.job.Spec.Preemptible = true
			w.settle()
			w.expectPhase(v2alpha1.JobRunning)
			w.job.Status.Allocation = tc.allocation
			w.settle()
			w.expectReschedules(tc.reschedules)
			expect.Equal(t, "the learner was created times", 1+int(tc.reschedules), w.created["job-learner-0"])
		})
	}
}

func TestAResizeStartsAllReplicasAnewWhereTheJobSaysSo(t *testing.T) {
	for name, resize := range map[string]func(*world){
		"by the spec":   func(w *world) { w.job.Spec.Tasks[1].Replicas = ptr.To(int32(3)) },
		"by the status": func(w *world) { w.job.Status.Replicas = 5 },
		"by the scale":  func(w *world) { w.job.Spec.Elastic.Replicas = ptr.To(int32(3)) },
	} {
		t.Run(name, func(t *testing.T) {
			spec := trainingJob()
			spec.Elastic = &v2alpha1.Elastic{OnResize: v2alpha1.OnResizeRestart}
			w := settled(t, spec)
			w.run(w.podNames()...)
			w.end("job-evaluator-0", 0)
			w.settle()
			resize(w)
			w.step()
			w.expectPhase(v2alpha1.JobRescheduling)
			w.settle()
			w.expectReschedules(1)
			w.expectPods("job-learner-0", "job-collector-0", "job-collector-1", "job-collector-2", "job-evaluator-0")
			expect.Equal(t, "ranks are not dense again: the evaluator", "4", w.pod("job-evaluator-0").Annotations[names.AnnotationRank])
			w.settle()
			w.expectReschedules(1)
		})
	}
}

func TestTheAllocatorResizesAJobThatContinuesWithoutARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		onResize   v2alpha1.OnResize
		tasks      []int
		allocation []string
		clusters   []v2alpha1.ClusterSpec
		// isContinued is set if no replica that stays restarts.
		isContinued bool
	}{
		"it grows":                               {onResize: "Continue", allocation: []string{"a", "a", "b", "b", "c"}, isContinued: true},
		"it grows on its own nodes":              {onResize: "Continue", allocation: []string{"a", "a", "b", "a"}, isContinued: true},
		"it shrinks":                             {onResize: "Continue", allocation: []string{"a", "a"}, isContinued: true},
		"it grows and moves":                     {onResize: "Continue", allocation: []string{"a", "c", "b", "b"}},
		"it shrinks and moves":                   {onResize: "Continue", allocation: []string{"c", "a"}},
		"it moves":                               {onResize: "Continue", allocation: []string{"a", "a", "c"}},
		"it does not ask for it":                 {allocation: []string{"a", "a", "b", "b"}},
		"it asks for a restart":                  {onResize: "Restart", allocation: []string{"a", "a", "b", "b"}},
		"Torch cannot continue":                  {onResize: "Continue", allocation: []string{"a", "a", "b", "b"}, clusters: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}},
		"the ranks of a later task would change": {onResize: "Continue", tasks: []int{1, 0}, allocation: []string{"a", "a", "b", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			tasks := trainingJob().Tasks[:2]
			if tc.tasks != nil {
				tasks = []v2alpha1.Task{tasks[tc.tasks[0]], tasks[tc.tasks[1]]}
			}
			w := newWorld(t, v2alpha1.DIJobSpec{
				Tasks: tasks, Preemptible: true, ClusterSpec: tc.clusters,
				Elastic: &v2alpha1.Elastic{Task: "collector", OnResize: tc.onResize, MinReplicas: ptr.To(int32(1)), MaxReplicas: ptr.To(int32(8))},
			})
			w.job.Status.Allocation = []string{"a", "a", "b"}
			w.allRun()
			clear(w.created)
			w.job.Status.Allocation = tc.allocation
			w.allRun()
			w.expectPhase(v2alpha1.JobRunning)
			if isContinued := w.job.Status.Reschedules == 0; isContinued != tc.isContinued {
				t.Fatalf("reschedules are %d; the job continues: want %t", w.job.Status.Reschedules, tc.isContinued)
			}
			if len(w.pods) != len(tc.allocation) || w.created["job-learner-0"] > 0 == tc.isContinued {
				t.Errorf("%d pods, want %d; created %v", len(w.pods), len(tc.allocation), w.created)
			}
			for _, pod := range w.pods {
				if rank := podstate.Rank(pod); pod.Annotations[names.AnnotationNode] != tc.allocation[rank] {
					t.Errorf("rank %d is on %s, want %s", rank, pod.Annotations[names.AnnotationNode], tc.allocation[rank])
				}
			}
			if w.told(v2alpha1.ReasonResized) > 0 != tc.isContinued || conditions.IsTrue(&w.job.Status, v2alpha1.ConditionResizing) {
				t.Errorf("%d events, conditions %v", w.told(v2alpha1.ReasonResized), w.job.Status.Conditions)
			}
		})
	}
}

// TestAJobWithAPodThatIsMissingRestartsWhenItIsResized: the pod may exist where the former placement has it.
func TestAJobWithAPodThatIsMissingRestartsWhenItIsResized(t *testing.T) {
	w := newWorld(t, v2alpha1.DIJobSpec{
		Tasks: trainingJob().Tasks[:2], Preemptible: true,
		Elastic: &v2alpha1.Elastic{Task: "collector", OnResize: v2alpha1.OnResizeContinue, MaxReplicas: ptr.To(int32(8))},
	})
	w.job.Status.Allocation = []string{"a", "a", "b"}
	w.allRun()
	delete(w.pods, "job-collector-1")
	w.job.Status.Allocation = []string{"a", "a", "c", "c"}
	w.allRun()
	w.expectReschedules(1)
}

func TestAStatusFromABackupLearnsOfReschedulesFromThePods(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.job.Status.Allocation = []string{"c", "c", "c", "c"}
	w.settle()
	w.job.Status.Reschedules = 0
	w.settle()
	w.expectReschedules(1)
	expect.Equal(t, "the learner was created times", 2, w.created["job-learner-0"])
}

// TestAJobThatLostItsPlaceBeforeThatWasRecordedStartsAnew: its pods still exist when it is placed
// again with another size.
func TestAJobThatLostItsPlaceBeforeThatWasRecordedStartsAnew(t *testing.T) {
	for name, node := range map[string]string{"on other nodes": "b", "on the same nodes": "a"} {
		t.Run(name, func(t *testing.T) {
			w := preemptibleWorld(t, "a", "a", "a", "a", "a")
			w.job.Status = v2alpha1.DIJobStatus{}
			for name := range w.pods {
				w.terminate(name)
			}
			w.step()
			delete(w.pods, "job-collector-1")
			w.job.Status.Allocation = slices.Repeat([]string{node}, 4)
			w.settle()
			w.expectRanks(map[string]int32{"job-learner-0": 0, "job-collector-0": 1, "job-collector-1": 2, "job-evaluator-0": 3})
			w.expectReschedules(1)
		})
	}
}

func TestAJobWithoutAPlaceHasNoPodsThoughItsPlaceWasNotRecorded(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.job.Status = v2alpha1.DIJobStatus{}
	w.settle()
	w.expectPods()
	w.expectPhase(v2alpha1.JobPending)
	w.expectReschedules(1)
}

// TestASuccessIsNoOthersWhereASuspendedJobIsPlacedAnew: the elastic task is the second, so the
// evaluator's rank depends on the size.
func TestASuccessIsNoOthersWhereASuspendedJobIsPlacedAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		succeeds    string
		from, to    int
		isKept      bool
		reschedules int32
	}{
		"the rank is the same":                                   {"job-collector-0", 4, 5, true, 0},
		"the rank is the evaluator's now":                        {"job-collector-1", 4, 3, false, 1},
		"the rank is a collector's now":                          {"job-evaluator-0", 4, 5, false, 1},
		"the rank is the same as it was":                         {"job-evaluator-0", 4, 4, true, 0},
		"the rank is the evaluator's while the job has no place": {"job-collector-2", 5, 5, false, 1},
		"no replica has the rank any more":                       {"job-evaluator-0", 4, 3, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := preemptibleWorld(t, slices.Repeat([]string{"a"}, tc.from)...)
			w.end(tc.succeeds, 0)
			w.settle()
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
			w.settle()
			w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = nil })
			w.settle()
			w.expectPhase(v2alpha1.JobPending)
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
			w.settle()
			w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = slices.Repeat([]string{"b"}, tc.to) })
			w.settle()
			want := wantedNames(w.job)
			if tc.isKept {
				delete(want, tc.succeeds)
			}
			w.expectPods(slices.Collect(maps.Keys(want))...)
			w.expectReschedules(tc.reschedules)
		})
	}
}
