// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func (w *world) expectAdmitted(want corev1.ConditionStatus, reason string) {
	w.t.Helper()
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionAdmitted)
	if condition == nil || condition.Status != want || condition.Reason != reason {
		w.t.Fatalf("condition Admitted is %+v, want %s by %s", condition, want, reason)
	}
}

// groups returns the groups of the pods, and the number of pods without one.
func (w *world) groups() (groups map[string]int, alone int) {
	groups = map[string]int{}
	for _, pod := range w.pods {
		if meta := queueing.FromPod(pod); meta.Group != "" {
			groups[meta.Group]++
		} else {
			alone++
		}
	}
	return groups, alone
}

// expectOneGroup expects all pods in one group, and returns its name.
func (w *world) expectOneGroup(size int) string {
	w.t.Helper()
	groups, alone := w.groups()
	for group, members := range groups {
		if len(groups) == 1 && alone == 0 && members == size {
			return group
		}
	}
	w.t.Fatalf("groups are %v, and %d pods in none; want one of %d", groups, alone, size)
	return ""
}

func (w *world) expectCounts(restarts, reschedules int32) {
	w.t.Helper()
	if status := &w.job.Status; status.Restarts != restarts || status.Reschedules != reschedules {
		w.t.Fatalf("%d restarts and %d reschedules, want %d and %d", status.Restarts, status.Reschedules, restarts, reschedules)
	}
}

// runQueued returns a queued job that runs.
func runQueued(t *testing.T) *world {
	t.Helper()
	w := newQueuedWorld(t)
	w.settle()
	w.run(w.admitted()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	return w
}

func TestAJobWhoseQueueNobodyManagesRunsAndReportsIt(t *testing.T) {
	w := newQueuedWorld(t)
	w.kueue = nil
	w.settle()
	if conditions.Find(&w.job.Status, v2alpha1.ConditionAdmitted) != nil {
		t.Error("an operator that ignores queues reports one")
	}
	w.looksForKueue = true
	w.settle()
	w.expectAdmitted(corev1.ConditionFalse, v2alpha1.ReasonNoKueue)
	w.run(w.podNames()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.expectAdmitted(corev1.ConditionFalse, v2alpha1.ReasonNoKueue)
	w.looksForKueue = false
	w.settle()
	w.expectAdmitted(corev1.ConditionFalse, "")
}

func TestAQueuedJobWaitsUntilKueueAdmitsItAsAWhole(t *testing.T) {
	w := newQueuedWorld(t)
	w.kueue.isOpen = false
	w.job.Spec.ActiveDeadlineSeconds = ptr.To(int64(600))
	w.settle()
	w.expectOneGroup(4)
	w.expectPhase(v2alpha1.JobStarting)
	w.expectAdmitted(corev1.ConditionFalse, v2alpha1.ReasonWaitingInQueue)
	// It is neither stalled nor active, regardless of how long it waits.
	w.now = w.now.Add(24 * time.Hour)
	w.settle()
	w.expectPhase(v2alpha1.JobStarting)
	if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasStalled) {
		t.Error("a job that waits in its queue is stalled")
	}
	w.kueue.isOpen = true
	w.settle()
	w.expectAdmitted(corev1.ConditionTrue, v2alpha1.ConditionAdmitted)
	w.run(w.admitted()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.expectCounts(0, 0)
	w.now = w.now.Add(11 * time.Minute)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
}

func TestAJobInAQueueSaysInKueuesWordsWhyItWaits(t *testing.T) {
	w := newQueuedWorld(t)
	w.kueue.isOpen = false
	w.settle()
	// The clock of the world advances with each step.
	const steps = 20 * time.Second
	expectSays := func(want string, again time.Duration) {
		t.Helper()
		w.settle()
		after := Decide(w.observe()).RequeueAfter
		condition := conditions.Find(&w.job.Status, v2alpha1.ConditionAdmitted)
		if condition == nil || condition.Message != want || after < again || after > again+steps {
			t.Fatalf("condition Admitted is %+v, Kueue is asked again in %s; want %q and %s", condition, after, want, again)
		}
	}
	const waits = "the job waits in queue team for Kueue to admit it"
	expectSays(waits, time.Second)
	w.queueWords = "insufficient unused quota for cpu in flavor any, 20m more needed"
	expectSays(waits+": "+w.queueWords, time.Minute)
	w.now = w.now.Add(4 * time.Minute)
	expectSays(waits+": "+w.queueWords, 4*time.Minute)
	w.now = w.now.Add(time.Hour)
	expectSays(waits+": "+w.queueWords, 10*time.Minute)
	w.queueWords = "LocalQueue team doesn't exist"
	expectSays(waits+": "+w.queueWords, time.Minute)

	w.kueue.isOpen = true
	w.settle()
	w.expectAdmitted(corev1.ConditionTrue, v2alpha1.ConditionAdmitted)
	if message := conditions.Find(&w.job.Status, v2alpha1.ConditionAdmitted).Message; strings.Contains(message, w.queueWords) {
		t.Errorf("an admitted job still says %q", message)
	}
}

func TestAQueuedJobThatSucceedsHasFinishedForKueueToo(t *testing.T) {
	w := runQueued(t)
	group := w.expectOneGroup(4)
	for _, name := range w.podNames() {
		w.end(name, 0)
	}
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
	w.expectFinished(group)
}

func TestAQueuedJobThatFailsHasFinishedForKueueToo(t *testing.T) {
	w := runQueued(t)
	w.job.Spec.BackoffLimit = ptr.To(int32(0))
	group := w.expectOneGroup(4)
	w.end("job-collector-1", 1)
	w.settle()
	w.expectPhase(v2alpha1.JobFailed)
	w.expectFinished(group)
	w.expectPods("job-collector-1")
}

// expectFinished expects that Kueue no longer holds quota or pods.
func (w *world) expectFinished(group string) {
	w.t.Helper()
	if found := w.kueue.groups[group]; found != nil && !found.finished {
		w.t.Fatalf("group %s has not finished", group)
	}
	for _, pod := range w.pods {
		if len(pod.Finalizers) > 0 {
			w.t.Fatalf("Kueue holds %s", outlinePod(pod))
		}
	}
}

func TestWhatKueueEvictsQueuesAnewAndCountsAsNoFailure(t *testing.T) {
	w := runQueued(t)
	before := w.expectOneGroup(4)
	w.kueue.isOpen = false
	w.evictGroups()
	w.settle()
	w.expectCounts(0, 1)
	w.expectPhase(v2alpha1.JobStarting)
	w.expectAdmitted(corev1.ConditionFalse, v2alpha1.ReasonWaitingInQueue)
	if after := w.expectOneGroup(4); after == before {
		t.Errorf("the job queues in group %s again, which has finished", after)
	}
	if !slices.Contains(w.events, v2alpha1.ReasonJobRescheduling) {
		t.Errorf("events are %v", w.events)
	}
	w.kueue.isOpen = true
	w.settle()
	w.run(w.admitted()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
}

func TestARestartedJobQueuesAnewAsAGroup(t *testing.T) {
	w := runQueued(t)
	before := w.expectOneGroup(4)
	w.end("job-collector-0", 1)
	w.settle()
	w.expectCounts(1, 0)
	if after := w.expectOneGroup(4); after == before {
		t.Errorf("the job queues in group %s again", after)
	}
	w.run(w.admitted()...)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
}

func TestAReplicaThatIsMadeAgainAloneJoinsItsGroup(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"evicted by its node":        func(w *world) { w.evict("job-collector-0") },
		"deleted by hand":            func(w *world) { w.terminate("job-collector-0") },
		"failed, by the job's rules": func(w *world) { w.end("job-collector-0", 7) },
	} {
		t.Run(name, func(t *testing.T) {
			w := runQueued(t)
			w.job.Spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyRestartReplica}}}
			before := w.expectOneGroup(4)
			lose(w)
			w.settle()
			w.expectCounts(0, 0)
			if after := w.expectOneGroup(4); after != before {
				t.Errorf("the group is %s now and was %s", after, before)
			}
			w.run(w.admitted()...)
			w.settle()
			w.expectPhase(v2alpha1.JobRunning)
			if created := w.created["job-collector-0"]; created != 2 {
				t.Errorf("the replica was made %d times", created)
			}
		})
	}
}

func TestAReplicaWhoseGroupHasFinishedQueuesByItself(t *testing.T) {
	w := runQueued(t)
	for _, name := range []string{"job-learner-0", "job-collector-0", "job-collector-1"} {
		w.end(name, 0)
	}
	w.settle()
	w.evict("job-evaluator-0")
	w.settle()
	if meta := queueing.FromPod(w.pod("job-evaluator-0")); meta.Queue != "team" || meta.Group != "" {
		t.Errorf("the replica's meta are %+v", meta)
	}
	w.expectCounts(0, 0)
	w.end("job-evaluator-0", 0)
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
}

func TestAPodThatItsFinishedGroupForsookIsMadeAgain(t *testing.T) {
	w := runQueued(t)
	for _, name := range []string{"job-learner-0", "job-collector-0", "job-collector-1"} {
		w.end(name, 0)
	}
	w.settle()
	// Kueue may observe the end of the last pod before the creation of the next one.
	pod := w.pod("job-evaluator-0")
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	pod.Finalizers = nil
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: queueing.Gate}}
	w.settle()
	if created := w.created["job-evaluator-0"]; created != 2 {
		t.Errorf("the replica was made %d times", created)
	}
	if admitted := w.admitted(); !slices.Contains(admitted, "job-evaluator-0") {
		t.Errorf("only %v are admitted", admitted)
	}
}

func TestAJobThatLosesAllItsReplicasQueuesAnewAsAGroup(t *testing.T) {
	w := runQueued(t)
	before := w.expectOneGroup(4)
	for _, name := range w.podNames() {
		w.evict(name)
	}
	w.settle()
	w.expectCounts(0, 1)
	if after := w.expectOneGroup(4); after == before {
		t.Errorf("the job queues in group %s again, which has finished", after)
	}
}

func TestAQueuedJobQueuesAgainInItsNewSize(t *testing.T) {
	for name, tc := range map[string]struct {
		count  int32
		isOpen bool
	}{"that loses replicas of its start": {1, true}, "that grows before it is admitted": {5, false}} {
		t.Run(name, func(t *testing.T) {
			w := newQueuedWorld(t)
			w.kueue.isOpen = tc.isOpen
			w.settle()
			w.collect(tc.count)
			w.expectCounts(0, 1)
			w.expectOneGroup(2 + int(tc.count))
			told := w.lastEvents[v2alpha1.ReasonJobRescheduling]
			if !strings.Contains(told, "Kueue admits all replicas together") {
				t.Errorf("the event says %q", told)
			}
		})
	}
}

// collect changes the number of collectors of a queued job.
func (w *world) collect(count int32) {
	w.t.Helper()
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = &count })
	w.settle()
	w.run(w.admitted()...)
	w.settle()
}

// expectGroups expects groups of these sizes, and pods that queue by themselves.
func (w *world) expectGroups(alone int, sizes ...int) {
	w.t.Helper()
	groups, without := w.groups()
	found := slices.Sorted(maps.Values(groups))
	if !slices.Equal(found, sizes) || without != alone {
		w.t.Fatalf("groups are %v, and %d pods in none; want sizes %v, and %d", groups, without, sizes, alone)
	}
}

// expectMade expects that each pod was created so many times, once if it is not listed.
func (w *world) expectMade(times map[string]int) {
	w.t.Helper()
	for _, name := range w.podNames() {
		if made := w.created[name]; made != max(times[name], 1) {
			w.t.Fatalf("pod %s was created %d times, want %d", name, made, max(times[name], 1))
		}
	}
}

func TestWhatAQueuedJobGrowsByIsAGroupOfItsOwn(t *testing.T) {
	w := runQueued(t)
	first := w.expectOneGroup(4)
	w.kueue.isOpen = false
	w.collect(5)
	w.expectCounts(0, 0)
	w.expectGroups(0, 3, 4)
	w.expectPhase(v2alpha1.JobRunning)
	added := queueing.FromPod(w.pod("job-collector-2"))
	if want := first + "-1"; added.Group != want || added.Size != 3 || added.Queue != "team" {
		t.Errorf("the added pods have meta %+v, want group %s of 3", added, want)
	}
	if admitted := w.admitted(); len(admitted) != 4 {
		t.Errorf("%v are admitted", admitted)
	}
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionAdmitted)
	if want := "Kueue has admitted the job from queue team; 3 of its 7 pods wait there"; condition.Message != want {
		t.Errorf("condition Admitted says %q, want %q", condition.Message, want)
	}
	w.kueue.isOpen = true
	w.settle()
	w.run(w.admitted()...)
	w.settle()
	if admitted := w.admitted(); len(admitted) != 7 {
		t.Errorf("only %v are admitted", admitted)
	}
	w.expectMade(nil)
}

func TestAShrinkTakesAddedGroupsAndTheirQuota(t *testing.T) {
	w := runQueued(t)
	w.collect(4)
	w.collect(7)
	w.expectGroups(0, 2, 3, 4)
	w.collect(4)
	w.expectGroups(0, 2, 4)
	if len(w.kueue.groups) != 2 {
		t.Errorf("Kueue has groups %v", w.kueue.groups)
	}
	w.collect(2)
	w.expectGroups(0, 4)
	w.expectCounts(0, 0)
	w.expectMade(nil)
	// A name of a group never comes again.
	w.collect(4)
	if group := queueing.FromPod(w.pod("job-collector-2")).Group; !strings.HasSuffix(group, "-3") {
		t.Errorf("the third group is %s", group)
	}
}

func TestWhatAShrinkLeavesOfAnAddedGroupQueuesAgain(t *testing.T) {
	w := runQueued(t)
	w.collect(5)
	w.collect(4)
	w.expectCounts(0, 0)
	w.expectGroups(0, 2, 4)
	w.expectMade(map[string]int{"job-collector-2": 2, "job-collector-3": 2})
	w.collect(3)
	w.expectGroups(1, 4)
	w.collect(2)
	w.expectOneGroup(4)
	w.expectCounts(0, 0)
}

func TestAReplicaThatIsAddedAloneQueuesByItself(t *testing.T) {
	w := runQueued(t)
	for count := int32(3); count <= 5; count++ {
		w.collect(count)
	}
	w.expectGroups(3, 4)
	w.evict("job-collector-3")
	w.settle()
	w.expectGroups(3, 4)
	w.collect(4)
	w.expectGroups(2, 4)
	w.expectCounts(0, 0)
	w.expectMade(map[string]int{"job-collector-3": 2})
}

func TestAddedReplicasThatHoldStateQueueEachByItself(t *testing.T) {
	w := runQueued(t)
	w.job.Spec.Tasks[1].Drain = &v2alpha1.Drain{}
	w.collect(4)
	w.expectGroups(2, 4)
	w.expectCounts(0, 0)
}

func TestKueueEvictsAddedReplicasAndTheJobGoesOn(t *testing.T) {
	w := runQueued(t)
	first := w.expectOneGroup(4)
	w.collect(4)
	w.kueue.isOpen = false
	w.evictGroup(first + "-1")
	w.settle()
	w.expectCounts(0, 0)
	w.expectPhase(v2alpha1.JobRunning)
	w.expectGroups(0, 2, 4)
	if group := queueing.FromPod(w.pod("job-collector-3")).Group; group != first+"-2" {
		t.Errorf("the evicted replicas are in group %s", group)
	}
	w.expectMade(map[string]int{"job-collector-2": 2, "job-collector-3": 2})
	w.kueue.isOpen = true
	w.settle()
	if admitted := w.admitted(); len(admitted) != 6 {
		t.Errorf("only %v are admitted", admitted)
	}
}

func TestALostReplicaJoinsTheGroupThatItWasAddedIn(t *testing.T) {
	w := runQueued(t)
	w.collect(4)
	before := queueing.FromPod(w.pod("job-collector-3"))
	for _, name := range []string{"job-collector-0", "job-collector-3"} {
		w.evict(name)
	}
	w.settle()
	if after := queueing.FromPod(w.pod("job-collector-3")); after != before {
		t.Errorf("the replica is in %+v and was in %+v", after, before)
	}
	w.expectGroups(0, 2, 4)
	// A group that has lost all its replicas has finished.
	for _, name := range []string{"job-collector-2", "job-collector-3"} {
		w.evict(name)
	}
	w.settle()
	if after := queueing.FromPod(w.pod("job-collector-3")); after.Group == before.Group || after.Size != 2 {
		t.Errorf("the replica is in %+v and was in %+v", after, before)
	}
	w.expectCounts(0, 0)
}

func TestARestartedJobQueuesWithItsAddedReplicas(t *testing.T) {
	w := runQueued(t)
	w.collect(4)
	w.end("job-learner-0", 1)
	w.settle()
	w.expectCounts(1, 0)
	w.expectOneGroup(6)
	if growth := w.job.Status.Scaling.Growth; growth != nil {
		t.Errorf("the status records growth %+v", growth)
	}
}

func TestGroupsThatAreAddedAreBounded(t *testing.T) {
	w := runQueued(t)
	count := int32(2)
	for range limits.GrowthGroups {
		count += 2
		w.collect(count)
	}
	w.collect(count + 3)
	w.expectCounts(0, 0)
	if growth := w.job.Status.Scaling.Growth; len(growth.Groups) != limits.GrowthGroups || growth.Alone != "132-134" {
		t.Errorf("%d groups, and alone are %s", len(growth.Groups), growth.Alone)
	}
}

func TestASuspendedJobLeavesItsQueueAndTakesPlaceInItAgain(t *testing.T) {
	w := runQueued(t)
	before := w.expectOneGroup(4)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.settle()
	w.expectPods()
	if len(w.kueue.groups) > 0 {
		t.Errorf("Kueue has groups %v", w.kueue.groups)
	}
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	w.settle()
	if after := w.expectOneGroup(4); after == before {
		t.Errorf("the job queues in group %s again, which has finished", after)
	}
	w.expectAdmitted(corev1.ConditionTrue, v2alpha1.ConditionAdmitted)
}

func TestAJobOfOneReplicaQueuesWithoutAGroupAndGrowsWithoutARestart(t *testing.T) {
	w := newQueuedWorld(t)
	w.job.Spec.Tasks = w.job.Spec.Tasks[1:2]
	w.job.Spec.Tasks[0].Replicas = nil
	w.settle()
	if groups, alone := w.groups(); len(groups) != 0 || alone != 1 {
		t.Fatalf("groups are %v, and %d pods in none", groups, alone)
	}
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To(int32(3)) })
	w.settle()
	if groups, alone := w.groups(); len(groups) != 0 || alone != 3 || len(w.admitted()) != 3 {
		t.Fatalf("groups are %v, and %d pods in none", groups, alone)
	}
	w.expectCounts(0, 0)
}

func TestAJobThatRunsWithoutAQueueIsNotPutInOne(t *testing.T) {
	w := startedJob(t)
	w.kueue = newKueue()
	w.change(func(job *v2alpha1.DIJob) { job.Labels = map[string]string{queueing.LabelQueue: "team"} })
	w.evict("job-collector-0")
	w.settle()
	if meta := queueing.FromPod(w.pod("job-collector-0")); meta.Queue != "" {
		t.Errorf("one replica of many queues: %+v", meta)
	}
	// The next attempt is in the queue.
	w.end("job-learner-0", 1)
	w.settle()
	w.expectOneGroup(len(w.pods))
}

func TestTheQueueOfAGangThatIsLeftToVolcanoIsVolcanos(t *testing.T) {
	for name, tc := range map[string]struct {
		label, scheduler string
		isKueues         bool
	}{
		"the spec's, and Volcano's gang":       {"", changeable, false},
		"the spec's, and Kubernetes' own gang": {"", unchangeable, true},
		"the label's, and Volcano's gang":      {"team", changeable, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := gangWorld(t, tc.scheduler)
			w.kueue = newKueue()
			w.job.Spec.Scheduling.Queue = "team"
			if tc.label != "" {
				w.job.Labels = map[string]string{queueing.LabelQueue: tc.label}
			}
			w.startAll()
			w.expectPhase(v2alpha1.JobRunning)
			w.expectGang("True GangPlaced")
			for name, pod := range w.pods {
				if meta := queueing.FromPod(pod); (meta.Queue != "") != tc.isKueues {
					t.Errorf("pod %s has meta %+v", name, meta)
				}
			}
		})
	}
}

func TestAQueueThatIsNotKueuesLeavesPodsUnmarked(t *testing.T) {
	w := newQueuedWorld(t)
	w.kueue = nil
	w.settle()
	for _, pod := range w.pods {
		if meta := queueing.FromPod(pod); meta != (queueing.PodMeta{}) {
			t.Errorf("meta are %+v", meta)
		}
	}
}

func TestPodsThatKueueDoesNotTakeUpAreTold(t *testing.T) {
	w := newQueuedWorld(t)
	w.settle()
	for _, pod := range w.pods {
		delete(pod.Labels, queueing.LabelManaged)
	}
	w.settle()
	w.expectAdmitted(corev1.ConditionFalse, v2alpha1.ReasonNotManagedByKueue)
	if !slices.Contains(w.events, v2alpha1.ReasonNotManagedByKueue) {
		t.Errorf("events are %v", w.events)
	}
}

func TestAPreemptibleJobDoesNotQueue(t *testing.T) {
	w := newQueuedWorld(t)
	w.job.Spec.Preemptible = true
	w.job.Status.Allocation = []string{"a", "a", "b", "b"}
	w.settle()
	w.expectPods()
	if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionInvalidSpec) {
		t.Error("nothing says why")
	}
	w.change(func(job *v2alpha1.DIJob) { job.Labels = nil })
	w.settle()
	if len(w.pods) != 4 || conditions.IsTrue(&w.job.Status, v2alpha1.ConditionInvalidSpec) {
		t.Errorf("without the queue there are pods %v", w.podNames())
	}
}

// TestAQueuedJobComesToRunWhateverHappens applies random events of Kueue, nodes and users. Once
// they stop, the job must get all its replicas.
func TestAQueuedJobComesToRunWhateverHappens(t *testing.T) {
	for seed := range seeds {
		random := newRandom(seed)
		w := newQueuedWorld(t)
		w.job.Spec.BackoffLimit = ptr.To(int32(-1))
		w.job.Spec.FailurePolicy = anyPolicy(random)
		w.job.Spec.FailurePolicy.Rules = slices.DeleteFunc(w.job.Spec.FailurePolicy.Rules, func(rule v2alpha1.FailurePolicyRule) bool {
			return rule.Action == v2alpha1.FailurePolicyFailJob
		})
		for range 60 {
			w.queueMischief(random)
		}
		w.kueue.isOpen = true
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
		for range 3 {
			// The backoff after disruptions ends.
			w.now = w.now.Add(2 * disruptions.LongestBackoff)
			w.settle()
			w.run(w.admitted()...)
		}
		w.settle()
		if !state.IsFinished(&w.job.Status) {
			expect.MustEqual(t, fmt.Sprintf("seed %d: the job", seed), v2alpha1.JobRunning, w.job.Status.Phase)
			w.checkRest()
		}
	}
}

// queueMischief applies one random event to a queued job.
func (w *world) queueMischief(random *rand.Rand) {
	admitted := w.admitted()
	one := func(names []string, do func(string)) func() {
		return func() {
			if len(names) > 0 {
				do(names[random.IntN(len(names))])
			}
		}
	}
	happenings := []func(){
		w.evictGroups,
		one(slices.Sorted(maps.Keys(w.kueue.groups)), w.evictGroup),
		func() { w.kueue.isOpen = !w.kueue.isOpen },
		one(admitted, func(name string) { w.toEnd(name, 1) }),
		one(admitted, func(name string) { w.toEnd(name, 0) }),
		one(admitted, w.evict),
		one(w.podNames(), func(name string) {
			if !podstate.Terminating(w.pods[name]) {
				w.terminate(name)
			}
		}),
		func() {
			for _, name := range admitted {
				w.evict(name)
			}
		},
		func() {
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(1 + random.Int32N(4)) })
		},
		func() {
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(random.IntN(3) == 0) })
		},
		func() { w.run(admitted...) },
		func() { w.run(admitted...) },
		func() { w.queue() },
		func() { w.reap() },
		func() { w.step() },
	}
	happenings[random.IntN(len(happenings))]()
	if random.IntN(3) == 0 {
		w.step()
	}
}
