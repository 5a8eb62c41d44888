// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// earlierWorld returns a world with a running job of v1.1.3, or of v1.1.1 if it has another
// subdomain than di-job.
func earlierWorld(t *testing.T, subdomain string) *world {
	t.Helper()
	w := allRunning(t, trainingJob())
	for _, pod := range w.pods {
		for _, annotation := range []string{names.AnnotationAttempt, names.AnnotationReschedule} {
			delete(pod.Annotations, annotation)
		}
		pod.Spec.Subdomain = subdomain
		env, told := pod.Spec.Containers[0].Env, w.environmentOf(pod)
		for i := range env {
			// These releases wrote all addresses into each pod.
			env[i].Value, env[i].ValueFrom = told[env[i].Name], nil
			switch env[i].Name {
			case names.EnvDIJobID:
				env[i].Value = "space/job"
			case names.EnvDINodes:
				env[i].Value = strings.ReplaceAll(env[i].Value, ".di-job.", "."+subdomain+".")
			}
		}
	}
	if subdomain != "di-job" {
		service := w.services["di-job"]
		delete(w.services, "di-job")
		service.Name = "dijob-job"
		w.services["dijob-job"] = service
	}
	clear(w.configMaps)
	status := &w.job.Status
	*status = v2alpha1.DIJobStatus{Phase: status.Phase, Replicas: status.Replicas, Conditions: status.Conditions}
	clear(w.created)
	return w
}

// leftIn sets the phase in which an earlier release stopped.
func (w *world) leftIn(phase v2alpha1.Phase) {
	w.job.Status.Phase = phase
	conditions.Clear(&w.job.Status, string(v2alpha1.JobRunning), w.now)
	conditions.Set(&w.job.Status, string(phase), corev1.ConditionTrue, "Job"+string(phase), "", w.now)
}

func TestAJobOfAnEarlierReleaseIsRestartedUnderNewAddresses(t *testing.T) {
	w := earlierWorld(t, "job")
	w.settle()
	if len(w.created) > 0 || w.services["dijob-job"] == nil || w.services["di-job"] != nil {
		t.Fatalf("created are %v, services %v", w.created, w.services)
	}
	w.end("job-collector-1", 1)
	w.settle()
	if len(w.created) != 4 || w.services["dijob-job"] != nil || w.services["di-job"] == nil {
		t.Errorf("created are %v, services %v", w.created, w.services)
	}
	expect.Equal(t, "the subdomain", "di-job", w.pod("job-learner-0").Spec.Subdomain)
}

func TestAPodOfAnEarlierReleaseThatIsLostIsMadeAgainAmongItsPeers(t *testing.T) {
	w := earlierWorld(t, "job")
	w.settle()
	w.evict("job-collector-0")
	w.settle()
	pod := w.pod("job-collector-0")
	if rank := pod.Annotations[names.AnnotationRank]; pod.Spec.Subdomain != "job" || rank != "1" || w.created["job-collector-0"] != 1 {
		t.Errorf("subdomain %s, rank %s, created %v", pod.Spec.Subdomain, rank, w.created)
	}
}

func TestARestartThatAnEarlierReleaseBeganIsNotCountedAgain(t *testing.T) {
	for name, tc := range map[string]struct{ restarts, want, created int32 }{
		"counted":     {1, 1, 1},
		"not counted": {0, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := earlierWorld(t, "di-job")
			w.leftIn(v2alpha1.JobRestarting)
			w.job.Status.Restarts = tc.restarts
			w.end("job-learner-0", 1)
			w.settle()
			if w.job.Status.Restarts != tc.want || len(w.created) != int(tc.created) {
				t.Errorf("restarts are %d, created %v", w.job.Status.Restarts, w.created)
			}
		})
	}
}

func TestAGapThatAnEarlierReleaseLeftIsFilledOnceItsPodsAreGone(t *testing.T) {
	w := earlierWorld(t, "di-job")
	delete(w.pods, "job-collector-0")
	w.job.Spec.Tasks[1].Replicas = ptr.To(int32(1))
	w.settle()
	w.expectPods("job-learner-0", "job-collector-1", "job-evaluator-0")
	w.expectPhase(v2alpha1.JobRunning)
	w.job.Spec.Tasks[1].Replicas = ptr.To(int32(2))
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-collector-1", "job-evaluator-0")
	w.job.Spec.Tasks[1].Replicas = ptr.To(int32(1))
	w.settle()
	w.expectPods("job-learner-0", "job-collector-0", "job-evaluator-0")
}

func TestATotalThatWasWrittenBeforeIsHeldAgainstWhatPodsWereTold(t *testing.T) {
	for name, tc := range map[string]struct {
		status, spec int32
		want         int
	}{
		"the spec has changed since":      {4, 3, 5},
		"somebody asked for another":      {6, 2, 6},
		"both, and somebody's comes last": {6, 3, 6},
	} {
		t.Run(name, func(t *testing.T) {
			w := earlierWorld(t, "di-job")
			w.job.Status.Replicas = tc.status
			w.job.Spec.Tasks[1].Replicas = ptr.To(tc.spec)
			w.settle()
			if len(w.pods) != tc.want || int(w.job.Status.Replicas) != tc.want {
				t.Errorf("%d pods, replicas %d, want %d", len(w.pods), w.job.Status.Replicas, tc.want)
			}
		})
	}
}

func TestAPreemptibleJobOfAnEarlierReleaseGoesOnWhereItRuns(t *testing.T) {
	w := earlierWorld(t, "job")
	w.job.Spec.Preemptible = true
	w.job.Status.Replicas = 0
	for name, node := range map[string]string{"job-learner-0": "a", "job-collector-0": "b", "job-collector-1": "a", "job-evaluator-0": "c"} {
		w.pod(name).Spec.NodeName = node
	}
	w.end("job-collector-0", 0)
	w.settle()
	observed := w.observe()
	nodes, known := placements.NodesByRank(observed.Job, observed.Pods)
	if diff := cmp.Diff([]string{"a", "b", "a", "c"}, nodes); diff != "" || !known {
		t.Fatalf("it runs (-want +got):\n%s", diff)
	}
	expect.Equal(t, "ended are", map[int]bool{1: true}, placements.EndedRanks(observed.Job, observed.Pods))
	w.job.Status.Allocation = nodes
	w.settle()
	w.expectReschedules(0)
	if len(w.created) > 0 || w.job.Status.CompletedRanks != "1" {
		t.Errorf("created are %v, completed %q", w.created, w.job.Status.CompletedRanks)
	}
}

func TestAMoveThatAnEarlierReleaseBeganIsNotCountedAgain(t *testing.T) {
	w := earlierWorld(t, "di-job")
	w.job.Spec.Preemptible = true
	w.leftIn(v2alpha1.JobRescheduling)
	w.job.Status.Reschedules, w.job.Status.Allocation = 3, []string{"a", "a", "b", "b"}
	for _, pod := range w.pods {
		pod.Spec.NodeName = "a"
	}
	w.settle()
	w.expectReschedules(3)
	expect.Equal(t, "recreated", map[string]int{"job-collector-1": 1, "job-evaluator-0": 1}, w.created)
}

func TestWhereAJobRunsThatWasNeverPlaced(t *testing.T) {
	tests := map[string]struct {
		change func(*world)
		nodes  []string
		known  bool
	}{
		"all run": {func(*world) {}, []string{"a", "a", "a", "a"}, true},
		"one is not there yet": {func(w *world) {
			delete(w.pods, "job-collector-0")
		}, []string{"a", "", "a", "a"}, true},
		"one is being deleted": {func(w *world) {
			w.pod("job-collector-0").DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
		}, []string{"a", "", "a", "a"}, true},
		"one has failed": {func(w *world) { w.end("job-learner-0", 1) }, []string{"", "a", "a", "a"}, true},
		"one waits for its node": {func(w *world) {
			w.pod("job-collector-0").Spec.NodeName = ""
		}, nil, false},
		"nothing runs":          {func(w *world) { clear(w.pods) }, nil, true},
		"two say the same rank": {func(w *world) { w.pod("job-collector-0").Annotations[names.AnnotationRank] = "0" }, nil, true},
		"one says no rank":      {func(w *world) { delete(w.pod("job-collector-0").Annotations, names.AnnotationRank) }, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := earlierWorld(t, "di-job")
			w.job.Spec.Preemptible = true
			for _, pod := range w.pods {
				pod.Spec.NodeName = "a"
			}
			tc.change(w)
			observed := w.observe()
			nodes, known := placements.NodesByRank(observed.Job, observed.Pods)
			if diff := cmp.Diff(tc.nodes, nodes); diff != "" || known != tc.known {
				t.Errorf("known is %v, nodes (-want +got):\n%s", known, diff)
			}
		})
	}
}

func TestRanksThatHaveEndedAreThoseOfThisPlace(t *testing.T) {
	w := preemptibleWorld(t, "a", "a", "a", "b")
	w.end("job-collector-1", 0)
	w.settle()
	delete(w.pods, "job-collector-1")
	observed := w.observe()
	expect.Equal(t, "ended are", map[int]bool{2: true}, placements.EndedRanks(observed.Job, observed.Pods))
	observed.Job.Status.Allocation = []string{"c", "c", "c", "c"}
	if got := placements.EndedRanks(observed.Job, observed.Pods); len(got) > 0 {
		t.Errorf("of another place %v have ended", got)
	}
}

func TestAnEvictionOffANodeAndTheNewPlaceComeInAnyOrder(t *testing.T) {
	evict := func(w *world) {
		pod := w.pod("job-evaluator-0")
		pod.Status.Phase = corev1.PodFailed
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		w.settle()
	}
	move := func(w *world) {
		w.job.Status.Allocation = []string{"a", "a", "a", "c"}
		w.settle()
	}
	for name, steps := range map[string][]func(*world){
		"first the eviction": {evict, move}, "first the place": {move, evict},
		"the place while the pod goes": {func(w *world) {
			w.pod("job-evaluator-0").DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
			w.step()
			move(w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := preemptibleWorld(t, "a", "a", "a", "b")
			for _, step := range steps {
				step(w)
			}
			w.run(w.podNames()...)
			w.settle()
			w.expectPhase(v2alpha1.JobRunning)
			w.expectReschedules(1)
			if w.job.Status.Restarts != 0 || len(w.pods) != 4 {
				t.Errorf("restarts are %d, pods %v", w.job.Status.Restarts, w.podNames())
			}
		})
	}
}

func TestTheEndThatAnEarlierReleaseTellsByThePhaseAloneIsFinal(t *testing.T) {
	for _, phase := range []v2alpha1.Phase{v2alpha1.JobSucceeded, v2alpha1.JobFailed} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t, trainingJob())
			w.job.Status = v2alpha1.DIJobStatus{Phase: phase, Replicas: 4}
			w.settle()
			w.expectPhase(phase)
			w.expectPods()
			if !conditions.IsTrue(&w.job.Status, string(phase)) || w.job.Status.CompletionTimestamp == nil {
				t.Errorf("the end is not recorded: %+v", w.job.Status)
			}
		})
	}
}

func TestAJobThatAnEarlierReleaseEndedIsDeletedInTime(t *testing.T) {
	w := newWorld(t, trainingJob())
	w.leftIn(v2alpha1.JobSucceeded)
	ended := metav1.NewTime(w.now)
	w.now = w.now.Add(time.Minute)
	w.settle()
	if got := w.job.Status.CompletionTimestamp; !ended.Equal(got) {
		t.Errorf("it has finished at %v, want %v", got, ended)
	}
	w.job.Spec.TTLSecondsAfterFinished = ptr.To(int32(60))
	if !Decide(w.observe()).DeleteJob {
		t.Error("it is kept longer than it is to be")
	}
}
