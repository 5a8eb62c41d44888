// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// mostOfAPass is far more than a reconcile of a few pods allocates, and far less than the
// allocation for a count of millions.
const mostOfAPass = 32 << 20

// decideWithin decides, and fails the test if the decision allocates memory by an absurd count.
func decideWithin(t *testing.T, observed Observed) Decision {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	decision := Decide(observed)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > mostOfAPass {
		t.Errorf("the pass allocated %d bytes, want at most %d", got, mostOfAPass)
	}
	return decision
}

// runningTraining returns a job whose four workers run.
func runningTraining(t *testing.T) *world {
	t.Helper()
	w := allRunning(t, trainingJob())
	return w
}

func conditionMessage(status *v2alpha1.DIJobStatus, condition string) string {
	found := conditions.Find(status, condition)
	if found == nil || found.Status != corev1.ConditionTrue {
		return ""
	}
	return found.Message
}

// The tests of this file do not run in parallel, because they measure allocations.

func TestNothingIsSizedByACountBeyondWhatAJobMayHave(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v2alpha1.DIJob)
		want   string
	}{
		"a task": {func(job *v2alpha1.DIJob) {
			job.Spec.Tasks[0].Replicas = ptr.To(int32(math.MaxInt32))
		}, "spec.tasks[0].replicas: 2147483647: must be at most 5000"},
		"two tasks whose sum is no int32": {func(job *v2alpha1.DIJob) {
			job.Spec.Tasks[0].Replicas, job.Spec.Tasks[2].Replicas = ptr.To(int32(math.MaxInt32)), ptr.To(int32(math.MaxInt32))
		}, "spec.tasks[0].replicas: 2147483647"},
		"the scale subresource": {func(job *v2alpha1.DIJob) {
			job.Spec.Elastic = &v2alpha1.Elastic{Task: "collector", Replicas: ptr.To(int32(math.MaxInt32))}
		}, "spec.elastic.replicas: 2147483647"},
		"the least of the elastic task": {func(job *v2alpha1.DIJob) {
			job.Spec.Elastic = &v2alpha1.Elastic{Task: "collector", MinReplicas: ptr.To(int32(math.MaxInt32))}
		}, "spec.elastic.minReplicas: 2147483647"},
		"the total of the status": {func(job *v2alpha1.DIJob) {
			job.Status.Replicas = math.MaxInt32
		}, "status.replicas: 2147483647: must be at most 5000"},
		"one more than may be": {func(job *v2alpha1.DIJob) {
			job.Spec.Tasks[0].Replicas = ptr.To(int32(limits.PodsPerJob - 2))
		}, "spec.tasks: 5001"},
	} {
		t.Run(name, func(t *testing.T) {
			w := runningTraining(t)
			before := w.job.DeepCopy()
			tc.change(w.job)
			if sizing.IsResized(w.observe()) {
				t.Error("the job is said to be resized")
			}
			decision := decideWithin(t, w.observe())
			if got := conditionMessage(&decision.Status, v2alpha1.ConditionInvalidSpec); !strings.HasPrefix(got, tc.want) {
				t.Errorf("InvalidSpec says %q, want %s", got, tc.want)
			}
			if len(decision.CreatePods)+len(decision.DeletePods)+len(decision.CreateServices)+len(decision.DeleteServices) > 0 {
				t.Errorf("got %d creations and %d deletions", len(decision.CreatePods), len(decision.DeletePods))
			}
			pods := w.podNames()
			w.settle()
			w.expectPods(pods...)
			w.expectPhase(v2alpha1.JobRunning)

			w.job.Spec = *before.Spec.DeepCopy()
			w.job.Status.Replicas = before.Status.Replicas
			w.job.Spec.Tasks[1].Replicas = ptr.To(int32(3))
			w.settle()
			w.expectPods(append(pods, "job-collector-2")...)
			expect.Equal(t, "InvalidSpec still", "", conditionMessage(&w.job.Status, v2alpha1.ConditionInvalidSpec))
		})
	}
}

func TestTheSettingOfTheInstallationDecidesHowManyPodsAJobMayHave(t *testing.T) {
	w := newWorld(t, trainingJob())
	observed := w.observe()
	observed.Settings.MaxPods = 3
	decision := Decide(observed)
	want := "spec.tasks: 4: the replicas of all tasks together must be at most 3"
	if got := conditionMessage(&decision.Status, v2alpha1.ConditionInvalidSpec); !strings.HasPrefix(got, want) {
		t.Errorf("InvalidSpec says %q, want %s", got, want)
	}
	if decision.Status.Phase != v2alpha1.JobPending || len(decision.CreatePods) > 0 {
		t.Errorf("got phase %s and %d pods", decision.Status.Phase, len(decision.CreatePods))
	}
}

func TestAJobOfTooManyPodsIsStillSuspendedAndEndsAtItsDeadline(t *testing.T) {
	w := runningTraining(t)
	w.end("job-learner-0", 0)
	w.job.Spec.Tasks[1].Replicas = ptr.To(int32(math.MaxInt32))
	w.job.Spec.Suspend = ptr.To(true)
	w.settle()
	// The replica that succeeded is known once the counts are valid.
	w.expectPods("job-learner-0")
	w.job.Spec.Suspend = nil
	w.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(1))
	w.now = w.now.Add(2 * time.Second)
	w.settle()
	w.now = w.now.Add(2 * time.Second)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
}

func TestADeadlineThatIsMeantToBeNeverIsNotOver(t *testing.T) {
	for _, never := range []int64{10_000_000_000, math.MaxInt64} {
		w := newWorld(t, trainingJob())
		w.job.Spec.ActiveDeadlineSeconds = &never
		w.settle()
		w.expectPhase(v2alpha1.JobStarting)
	}
}

func TestARankThatNoJobCanHaveIsNotBelieved(t *testing.T) {
	for _, rank := range []string{"20000000", "2147483646", "2147483647", strconv.Itoa(limits.Replicas)} {
		t.Run(rank, func(t *testing.T) {
			w := runningTraining(t)
			pods := w.podNames()
			w.pod("job-learner-0").Annotations[names.AnnotationRank] = rank
			delete(w.pods, "job-evaluator-0")
			decision := decideWithin(t, w.observe())
			if len(decision.CreatePods) != 1 || w.environmentOf(decision.CreatePods[0])[names.EnvDIRank] == rank {
				t.Fatalf("got %d pods", len(decision.CreatePods))
			}
			w.settle()
			w.expectPods(pods...)
		})
	}
}

func TestCountsOfRestartsThatAreTooFarAheadAreNotBelieved(t *testing.T) {
	for _, annotation := range []string{names.AnnotationAttempt, names.AnnotationReschedule, names.AnnotationReplicaRestart} {
		t.Run(annotation, func(t *testing.T) {
			w := runningTraining(t)
			w.pod("job-learner-0").Annotations[annotation] = "2147483647"
			w.settle()
			status := &w.job.Status
			if status.Restarts != 0 || status.Reschedules != 0 || len(status.ReplicaRestarts) > 0 {
				t.Errorf("got %d restarts, %d reschedules and those of replicas %v", status.Restarts, status.Reschedules, status.ReplicaRestarts)
			}
			w.end("job-collector-0", 1)
			w.settle()
			expect.Equal(t, "restarts", 1, w.job.Status.Restarts)
			expect.Equal(t, "the learner was created times", 2, w.created["job-learner-0"])
		})
	}
}

func TestForgedRecordsOfRanksSizeNothing(t *testing.T) {
	for name, forge := range map[string]func(*v2alpha1.DIJobStatus){
		"all ranks there are have succeeded": func(status *v2alpha1.DIJobStatus) { status.CompletedRanks = "0-2147483647" },
		"the same ranks again and again": func(status *v2alpha1.DIJobStatus) {
			status.Scaling.Ranks = map[string]string{"learner": strings.TrimSuffix(strings.Repeat("0-65535,", 10_000), ",")}
		},
		"counts that were never": func(status *v2alpha1.DIJobStatus) {
			status.Scaling.SpecReplicas = map[string]int32{"learner": math.MaxInt32, "collector": math.MaxInt32}
			status.Scaling.LastReplicas = math.MinInt32
		},
		"restarts at the end of their type": func(status *v2alpha1.DIJobStatus) { status.Restarts, status.Reschedules = math.MaxInt32, math.MaxInt32 },
	} {
		t.Run(name, func(t *testing.T) {
			w := runningTraining(t)
			forge(&w.job.Status)
			delete(w.pods, "job-evaluator-0")
			decision := decideWithin(t, w.observe())
			if decision.Status.Restarts < 0 || decision.Status.Reschedules < 0 {
				t.Errorf("got %d restarts and %d reschedules", decision.Status.Restarts, decision.Status.Reschedules)
			}
		})
	}
}

func TestWhatTheAllocatorAsksSizesNothing(t *testing.T) {
	job := newWorld(t, trainingJob()).job
	job.Spec.Tasks[1].Replicas = ptr.To(int32(math.MaxInt32))
	job.Status.CompletedRanks = "0-2147483647"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	placements.NodesByRank(job, nil)
	placements.EndedRanks(job, nil)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > mostOfAPass {
		t.Errorf("got %d bytes, want at most %d", got, mostOfAPass)
	}
}

func TestAConditionNamesAFewAndCountsTheRest(t *testing.T) {
	w := newWorld(t, ledJob())
	w.config = nil
	w.settle()
	for i := range 1000 {
		w.membership.Spec.Members = append(w.membership.Spec.Members, v2alpha1.Member{
			Slot: fmt.Sprintf("aggregator-%d", i), Task: v2alpha1.TaskTypeLearner, PodName: fmt.Sprintf("job-aggregator-%d", i), DDPGPUs: []int32{2},
		})
	}
	decision := Decide(w.observe())
	message := conditionMessage(&decision.Status, v2alpha1.ConditionAggregatorConfigMissing)
	if !strings.Contains(message, "aggregator-2 ") || strings.Contains(message, "aggregator-3 ") || !strings.HasSuffix(message, "and 997 more") {
		t.Errorf("got the message %q", message)
	}
	if i := slices.IndexFunc(decision.Events, func(e Event) bool { return len(e.Message) > limits.MessageLength+50 }); i >= 0 {
		t.Errorf("got an event of %d bytes", len(decision.Events[i].Message))
	}
}

func TestAForgedMembershipSizesNothing(t *testing.T) {
	for name, forge := range map[string]func(*v2alpha1.Membership){
		"a learner of more GPUs than one may have": func(list *v2alpha1.Membership) {
			list.Spec.Members = []v2alpha1.Member{{Slot: "aggregator-aaaaa", Task: v2alpha1.TaskTypeLearner, PodName: "job-aggregator-aaaaa", DDPGPUs: []int32{math.MaxInt32}}}
		},
		"a learner of as many pods": func(list *v2alpha1.Membership) {
			list.Spec.Members = []v2alpha1.Member{{Slot: "aggregator-aaaaa", Task: v2alpha1.TaskTypeLearner, PodName: "job-aggregator-aaaaa", DDPGPUs: make([]int32, 200_000)}}
		},
		"more members than one may have": func(list *v2alpha1.Membership) {
			for i := range limits.Members + 1 {
				list.Spec.Members = append(list.Spec.Members, v2alpha1.Member{Slot: strconv.Itoa(i), Task: v2alpha1.TaskTypeCollector, PodName: fmt.Sprintf("job-collector-%d", i)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, ledJob())
			forge(w.membership)
			decision := decideWithin(t, w.observe())
			if got := conditionMessage(&decision.Status, v2alpha1.ConditionInvalidSpec); !strings.Contains(got, "must be at most") {
				t.Errorf("InvalidSpec says %q", got)
			}
			if len(decision.CreatePods)+len(decision.DeletePods) > 0 {
				t.Errorf("got %d creations and %d deletions", len(decision.CreatePods), len(decision.DeletePods))
			}
		})
	}
}
