// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const coordinator = "job-coordinator"

// ledJob returns a job with a coordinator, which may request collectors and learners.
func ledJob() v2alpha1.DIJobSpec {
	return v2alpha1.DIJobSpec{
		Lifecycle: v2alpha1.LifecycleCoordinatorLed,
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCoordinator, Template: template},
			{Type: v2alpha1.TaskTypeCollector, Template: template},
			{Type: v2alpha1.TaskTypeLearner, Template: template},
		},
	}
}

// ask adds a member as di-server would.
func (w *world) ask(task v2alpha1.TaskType, ddpGPUs ...int32) string {
	w.slots++
	slot := fmt.Sprintf("slot-%d", w.slots)
	member := v2alpha1.Member{Slot: slot, Task: task, DDPGPUs: ddpGPUs}
	member.PodName = names.ReplicaPod("job", membership.Role(&member), names.Suffix(slot))
	w.membership.Spec.Members = append(w.membership.Spec.Members, member)
	return slot
}

// current returns the names of a slot's pods.
func (w *world) current(slot string) []string {
	w.t.Helper()
	list := w.membership
	losses := map[string]int32{}
	for i := range list.Status.Slots {
		losses[list.Status.Slots[i].Slot] = list.Status.Slots[i].Losses
	}
	for i := range list.Spec.Members {
		if member := &list.Spec.Members[i]; member.Slot == slot {
			return membership.PodNames("job", member, losses[slot])
		}
	}
	w.t.Fatalf("there is no slot %s", slot)
	return nil
}

// led starts a coordinator-led job whose coordinator runs.
func led(t *testing.T, spec v2alpha1.DIJobSpec) *world {
	t.Helper()
	w := settled(t, spec)
	w.run(coordinator)
	w.settle()
	return w
}

func (w *world) expectServicesOfPods() {
	w.t.Helper()
	for name := range w.pods {
		if w.services[name] == nil {
			w.t.Errorf("pod %s has no service", name)
		}
	}
	for name := range w.services {
		if w.pods[name] == nil {
			w.t.Errorf("service %s has no pod", name)
		}
	}
}

func TestASerialJobRunsAndSucceeds(t *testing.T) {
	w := settled(t, ledJob())
	w.expectPhase(v2alpha1.JobStarting)
	w.expectPods(coordinator)
	w.run(coordinator)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.end(coordinator, 0)
	w.settle()
	w.expectPhase(v2alpha1.JobSucceeded)
	w.expectPods(coordinator)
	want := []string{"DIJobCreated", "DIJobRunning", "DIJobSucceeded"}
	expect.Equal(t, "events", want, w.events)
}

func TestRolesThatAreRecordedWithoutPodsStayRecorded(t *testing.T) {
	w := newWorld(t, ledJob())
	w.job.Status.Phase = v2alpha1.JobFailed
	w.job.Status.TaskStatus = map[string]v2alpha1.TaskStatus{"aggregator": {}, "learner": {}, "collector": {corev1.PodRunning: 1}}
	w.settle()
	want := map[string]v2alpha1.TaskStatus{"aggregator": {}, "learner": {}}
	expect.Equal(t, "task status", want, w.job.Status.TaskStatus)
}

func TestTheListExistsBeforeTheCoordinator(t *testing.T) {
	w := newWorld(t, ledJob())
	decision := Decide(w.observe())
	if decision.CreateMembership == nil || decision.CreateMembership.Spec.JobUID != w.job.UID {
		t.Fatalf("membership to create is %+v, want an empty one of the job", decision.CreateMembership)
	}
}

func TestAStaleListIsRebuilt(t *testing.T) {
	w := newWorld(t, ledJob())
	w.membership = &v2alpha1.Membership{Spec: v2alpha1.MembershipSpec{JobUID: "another", Members: []v2alpha1.Member{{
		Slot: "old", Task: v2alpha1.TaskTypeCollector, PodName: "job-collector-old",
	}}}}
	w.step()
	w.expectPods()
	w.settle()
	w.expectPods(coordinator)
	expect.Equal(t, "the membership is of job", w.job.UID, w.membership.Spec.JobUID)
}

func TestMembersAreMade(t *testing.T) {
	w := led(t, ledJob())
	collector := w.ask(v2alpha1.TaskTypeCollector)
	learner := w.ask(v2alpha1.TaskTypeLearner, 8, 2)
	w.settle()
	w.expectPods(slices.Concat([]string{coordinator}, w.current(collector), w.current(learner))...)
	w.expectServicesOfPods()
	w.run(w.podNames()...)
	w.settle()
	status := w.job.Status
	if status.Replicas != 5 || status.ReadyReplicas != 5 {
		t.Errorf("replicas are %d, ready %d, want 5 of both", status.Replicas, status.ReadyReplicas)
	}
	want := map[string]v2alpha1.TaskStatus{
		"coordinator": {corev1.PodRunning: 1}, "collector": {corev1.PodRunning: 1},
		"aggregator": {corev1.PodRunning: 1}, "learner": {corev1.PodRunning: 2},
	}
	expect.Equal(t, "task status", want, status.TaskStatus)
	aggregator := w.pod(w.current(learner)[0])
	ddp := w.pod(w.current(learner)[1])
	if owner := ddp.OwnerReferences[1]; owner.UID != aggregator.UID || owner.Controller != nil {
		t.Errorf("the DDP learner's second owner is %+v, want its aggregator, not as controller", owner)
	}
}

func TestAUnitWaitsForItsAggregatorConfig(t *testing.T) {
	w := led(t, ledJob())
	config := w.config
	w.config = nil
	collector := w.ask(v2alpha1.TaskTypeCollector)
	learner := w.ask(v2alpha1.TaskTypeLearner, 2)
	w.settle()
	w.expectPods(coordinator, w.current(collector)[0])
	if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionAggregatorConfigMissing) {
		t.Errorf("conditions are %+v, want AggregatorConfigMissing", w.job.Status.Conditions)
	}
	w.config = config
	w.settle()
	if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionAggregatorConfigMissing) {
		t.Error("AggregatorConfigMissing stays though there is one")
	}
	w.expectPods(slices.Concat([]string{coordinator}, w.current(collector), w.current(learner))...)
}

func TestALostReplicaIsReplacedUnderANewName(t *testing.T) {
	tests := map[string]func(w *world, name string){
		"gone":          func(w *world, name string) { delete(w.pods, name) },
		"being deleted": func(w *world, name string) { w.pods[name].DeletionTimestamp = &metav1.Time{Time: w.now} },
		"evicted":       func(w *world, name string) { w.evict(name) },
		"failed":        func(w *world, name string) { w.end(name, 1) },
	}
	for name, lose := range tests {
		for _, gpus := range [][]int32{nil, {2}, {8, 2}} {
			t.Run(fmt.Sprintf("%s of %d DDP learners", name, len(gpus)), func(t *testing.T) {
				w := led(t, ledJob())
				slot := w.ask(v2alpha1.TaskTypeLearner, gpus...)
				w.allRun()
				before := w.current(slot)
				lose(w, before[len(before)-1])
				w.settle()
				after := w.current(slot)
				for i := range before {
					if before[i] == after[i] {
						t.Errorf("pod %s keeps its name", before[i])
					}
				}
				w.expectPods(append(after, coordinator)...)
				w.expectServicesOfPods()
				w.expectPhase(v2alpha1.JobRunning)
			})
		}
	}
}

func TestANameThatWasReachedIsNotGivenTwiceThoughTheOperatorDiedBeforeItRecordedThePod(t *testing.T) {
	for _, gpus := range [][]int32{nil, {2}} {
		t.Run(fmt.Sprintf("of %d DDP learners", len(gpus)), func(t *testing.T) {
			w := led(t, ledJob())
			slot := w.ask(v2alpha1.TaskTypeLearner, gpus...)
			w.settle()
			w.expectServicesOfPods()
			before := w.current(slot)
			w.membership.Status.Slots = nil
			for _, name := range before {
				delete(w.pods, name)
			}
			w.settle()
			for _, name := range before {
				expect.Equal(t, fmt.Sprintf("pod %s was created", name), 1, w.created[name])
			}
			w.expectPods(append(w.current(slot), coordinator)...)
			w.expectServicesOfPods()
		})
	}
}

func TestALossThatIsNotConfirmedIsNotCounted(t *testing.T) {
	w := led(t, ledJob())
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	name := w.current(slot)[0]
	delete(w.pods, name)
	observed := w.observe()
	observed.Confirmed = false
	want := coordinatorled.Unconfirmed{Membership: true, Pods: []string{name}}
	expect.Equal(t, "doubts", want, coordinatorled.FindUnconfirmed(observed))
	decision := Decide(observed)
	if decision.MembershipStatus != nil && decision.MembershipStatus.Slots[0].Losses > 0 || len(decision.CreatePods) > 0 {
		t.Errorf("the loss is acted on: %+v, %d pods created", decision.MembershipStatus, len(decision.CreatePods))
	}
}

func TestAReplicaThatFailsAgainWaits(t *testing.T) {
	w := led(t, ledJob())
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	w.end(w.current(slot)[0], 1)
	w.settle()
	second := w.current(slot)[0]
	w.end(second, 1)
	decision := Decide(w.observe())
	expect.Equal(t, "looks again after", 10*time.Second, decision.RequeueAfter)
	w.settle()
	expect.Equal(t, second+" was replaced by", second, w.current(slot)[0])
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	if got := w.current(slot)[0]; got == second {
		t.Errorf("%s was not replaced", second)
	}
}

func TestAReportedReplicaIsReplaced(t *testing.T) {
	w := led(t, ledJob())
	slot := w.ask(v2alpha1.TaskTypeLearner, 2)
	w.settle()
	before := w.current(slot)
	w.membership.Spec.Members[0].FailureReports++
	w.settle()
	after := w.current(slot)
	if before[0] == after[0] {
		t.Errorf("aggregator %s keeps its name", before[0])
	}
	w.expectPods(append(after, coordinator)...)
	w.expectServicesOfPods()
}

func TestARemovedUnitIsDrainedWhole(t *testing.T) {
	w := led(t, ledJob())
	slot := w.ask(v2alpha1.TaskTypeLearner, 8, 2)
	w.settle()
	unit := w.current(slot)
	w.membership.Spec.Members = nil
	gone := membership.URLs{Learners: []string{names.ReplicaURL(unit[0], w.job.Namespace, 22272)}}
	membership.Record(&w.membership.Spec, membership.Request{Removal: true}, gone, w.now, membership.Unaged)
	w.settle()
	w.expectPods(append(unit, coordinator)...)
	w.expectServicesOfPods()
	w.now = w.now.Add(state.DefaultDrain + time.Second)
	w.settle()
	w.expectPods(coordinator)
	w.expectServicesOfPods()
}

func TestARemovedReplicaIsDrained(t *testing.T) {
	w := led(t, ledJob())
	slot := w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	name := w.current(slot)[0]
	w.membership.Spec.Members = nil
	gone := membership.URLs{Collectors: []string{names.ReplicaURL(name, w.job.Namespace, 22270)}}
	membership.Record(&w.membership.Spec, membership.Request{Removal: true}, gone, w.now, membership.Unaged)
	w.step()
	w.expectPods(coordinator, name)
	if w.services[name] == nil {
		t.Error("the service of a replica that is drained is gone")
	}
	w.now = w.now.Add(state.DefaultDrain + time.Second)
	w.settle()
	w.expectPods(coordinator)
	w.expectServicesOfPods()
}

// A coordinator that is connected to a reported replica disconnects when that disappears from the
// list. Users and aggregators may report it.
func TestAReportedReplicaIsDrained(t *testing.T) {
	tests := map[string]struct {
		told    func(after []string) string
		port    int32
		ddpGPUs []int32
	}{
		"a plain replica":                     {func(after []string) string { return after[0] }, 22271, nil},
		"a unit that its coordinator reports": {func(after []string) string { return after[0] }, 22272, []int32{2, 1}},
		"a unit that its aggregator reports":  {func(after []string) string { return after[2] }, 22271, []int32{2, 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := led(t, ledJob())
			slot := w.ask(v2alpha1.TaskTypeLearner, tc.ddpGPUs...)
			w.settle()
			before := w.current(slot)
			w.membership.Spec.Members[0].FailureReports++
			after := w.current(slot)
			replacement := membership.URLs{Learners: []string{names.ReplicaURL(tc.told(after), w.job.Namespace, tc.port)}}
			membership.Record(&w.membership.Spec, membership.Request{}, replacement, w.now, membership.Unaged)
			w.settle()
			w.expectPods(append(slices.Concat(before, after), coordinator)...)
			w.expectServicesOfPods()
			w.now = w.now.Add(state.DefaultDrain + time.Second)
			w.settle()
			w.expectPods(append(after, coordinator)...)
			w.expectServicesOfPods()
		})
	}
}

// Its coordinator may still be connected to a replica that it has reported when the member goes.
func TestAReportedReplicaIsDrainedWhenItsMemberIsRemoved(t *testing.T) {
	t.Parallel()
	for name, ddpGPUs := range map[string][]int32{"a plain replica": nil, "a unit": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := led(t, ledJob())
			slot := w.ask(v2alpha1.TaskTypeLearner, ddpGPUs...)
			w.settle()
			reported := w.current(slot)
			w.membership.Spec.Members[0].FailureReports++
			replacement := membership.URLs{Learners: []string{names.ReplicaURL(w.current(slot)[0], w.job.Namespace, 22271)}}
			membership.Record(&w.membership.Spec, membership.Request{}, replacement, w.now, membership.Unaged)
			w.membership.Spec.Members = nil
			membership.Record(&w.membership.Spec, membership.Request{Removal: true}, replacement, w.now, membership.Unaged)
			w.settle()
			w.expectPods(append(reported, coordinator)...)
			w.now = w.now.Add(state.DefaultDrain + time.Second)
			w.settle()
			w.expectPods(coordinator)
			w.expectServicesOfPods()
		})
	}
}

func TestAListThatIsLostIsBuiltFromThePods(t *testing.T) {
	w := led(t, ledJob())
	w.ask(v2alpha1.TaskTypeCollector)
	w.ask(v2alpha1.TaskTypeLearner, 8, 2)
	w.settle()
	before := w.podNames()
	members := len(w.membership.Spec.Members)
	w.membership = nil
	w.settle()
	w.expectPods(before...)
	expect.Equal(t, "the list", members, len(w.membership.Spec.Members))
	for name, times := range w.created {
		expect.Equal(t, fmt.Sprintf("pod %s was created", name), 1, times)
	}
}

func TestACoordinatorThatIsGoneIsMadeAgain(t *testing.T) {
	tests := map[string]func(w *world){
		"gone":    func(w *world) { delete(w.pods, coordinator) },
		"evicted": func(w *world) { w.evict(coordinator) },
		// Deployed users rely on this.
		"evicted over a limit of its own": func(w *world) { w.overuse(coordinator) },
		"deleted": func(w *world) {
			w.end(coordinator, 143)
			w.pods[coordinator].DeletionTimestamp = &metav1.Time{Time: w.now}
		},
	}
	for name, lose := range tests {
		t.Run(name, func(t *testing.T) {
			w := led(t, ledJob())
			slot := w.ask(v2alpha1.TaskTypeCollector)
			w.settle()
			lose(w)
			w.settle()
			w.expectPhase(v2alpha1.JobStarting)
			w.expectPods(coordinator, w.current(slot)[0])
			expect.Equal(t, "the coordinator was created times", 2, w.created[coordinator])
		})
	}
}

func TestAServiceThatDoesNotSelectItsPodSelectsItAgain(t *testing.T) {
	w := led(t, ledJob())
	w.services[coordinator].Spec.Selector["team"] = "of another template"
	w.settle()
	expect.Equal(t, "selector against the pod's labels", w.pod(coordinator).Labels, w.services[coordinator].Spec.Selector)
}

func TestHowACoordinatorEnds(t *testing.T) {
	terminated := func(name string, exitCode int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode},
		}}
	}
	running := corev1.ContainerStatus{Name: "sidecar"}
	tests := map[string]struct {
		policy   corev1.RestartPolicy
		phase    corev1.PodPhase
		statuses []corev1.ContainerStatus
		want     v2alpha1.Phase
	}{
		"its main container completes":           {corev1.RestartPolicyNever, corev1.PodRunning, []corev1.ContainerStatus{running, terminated("di-container", 0)}, v2alpha1.JobSucceeded},
		"its main container fails":               {corev1.RestartPolicyNever, corev1.PodRunning, []corev1.ContainerStatus{running, terminated("di-container", 2)}, v2alpha1.JobFailed},
		"the container named after it completes": {corev1.RestartPolicyNever, corev1.PodRunning, []corev1.ContainerStatus{running, terminated("coordinator", 0)}, v2alpha1.JobSucceeded},
		"its sidecar ends":                       {corev1.RestartPolicyNever, corev1.PodRunning, []corev1.ContainerStatus{terminated("sidecar", 1), {Name: "di-container"}}, v2alpha1.JobRunning},
		"it will be restarted":                   {corev1.RestartPolicyOnFailure, corev1.PodRunning, []corev1.ContainerStatus{running, terminated("di-container", 2)}, v2alpha1.JobRunning},
		"its sidecar fails after it":             {corev1.RestartPolicyNever, corev1.PodFailed, []corev1.ContainerStatus{terminated("sidecar", 1), terminated("di-container", 0)}, v2alpha1.JobSucceeded},
		"it fails and its sidecar does not":      {corev1.RestartPolicyNever, corev1.PodFailed, []corev1.ContainerStatus{terminated("sidecar", 0), terminated("di-container", 1)}, v2alpha1.JobFailed},
		"none of its containers is the main one": {corev1.RestartPolicyNever, corev1.PodFailed, []corev1.ContainerStatus{terminated("a", 0), terminated("b", 1)}, v2alpha1.JobFailed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := led(t, ledJob())
			pod := w.pod(coordinator)
			// Pods of an earlier release do not record their own containers, and have no token.
			delete(pod.Annotations, names.AnnotationContainers)
			pod.Spec.Volumes = nil
			pod.Spec.RestartPolicy, pod.Status.Phase, pod.Status.ContainerStatuses = tc.policy, tc.phase, tc.statuses
			w.settle()
			w.expectPhase(tc.want)
			w.expectPods(coordinator)
		})
	}
}

func TestCleanPodPolicyOfReplicas(t *testing.T) {
	tests := map[string]struct {
		policy                                          v2alpha1.CleanPodPolicy
		keepsCoordinator, keepsLooping, keepsRunningOne bool
	}{
		"Running by default": {"", true, true, false},
		"Running":            {v2alpha1.CleanPodPolicyRunning, true, true, false},
		"All":                {v2alpha1.CleanPodPolicyAll, false, false, false},
		"None":               {v2alpha1.CleanPodPolicyNone, true, true, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := ledJob()
			spec.CleanPodPolicy = tc.policy
			w := led(t, spec)
			running, looping := w.ask(v2alpha1.TaskTypeCollector), w.ask(v2alpha1.TaskTypeCollector)
			w.settle()
			w.run(w.podNames()...)
			w.pod(w.current(looping)[0]).Status.ContainerStatuses = []corev1.ContainerStatus{{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			}}
			w.end(coordinator, 0)
			w.settle()
			w.expectPhase(v2alpha1.JobSucceeded)
			var want []string
			for name, kept := range map[string]bool{
				coordinator: tc.keepsCoordinator, w.current(looping)[0]: tc.keepsLooping, w.current(running)[0]: tc.keepsRunningOne,
			} {
				if kept {
					want = append(want, name)
				}
			}
			w.expectPods(want...)
			expect.Equal(t, "result", 0, len(w.services))
		})
	}
}

// TestReplicasInAnyOrder applies random events to a job. Once they stop, the job must have exactly
// the pods of its list, and must succeed.
func TestReplicasInAnyOrder(t *testing.T) {
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := newRandom(seed)
			w := newWorld(t, ledJob())
			for range 120 {
				w.ledMischief(random)
				if random.IntN(3) > 0 {
					w.step()
				}
			}
			if state.IsFinished(&w.job.Status) {
				t.Fatalf("the job is finished: %+v", w.job.Status.Conditions)
			}
			for range 10 {
				w.now = w.now.Add(5 * time.Minute)
				w.settle()
			}
			want := []string{coordinator}
			for i := range w.membership.Spec.Members {
				want = append(want, w.current(w.membership.Spec.Members[i].Slot)...)
			}
			w.expectPods(want...)
			w.expectServicesOfPods()
			w.run(coordinator)
			w.settle()
			w.end(coordinator, 0)
			w.settle()
			w.expectPhase(v2alpha1.JobSucceeded)
		})
	}
}

// ledMischief applies one random event to a coordinator-led job.
func (w *world) ledMischief(random *rand.Rand) {
	if w.membership == nil {
		return
	}
	members := w.membership.Spec.Members
	switch random.IntN(8) {
	case 0:
		w.ask(v2alpha1.TaskTypeCollector)
	case 1:
		w.ask(v2alpha1.TaskTypeLearner, [][]int32{nil, {2}, {8, 2}}[random.IntN(3)]...)
	case 2:
		if len(members) > 0 {
			w.membership.Spec.Members = slices.Delete(members, 0, 1)
		}
	case 3:
		if len(members) > 0 {
			members[random.IntN(len(members))].FailureReports++
		}
	case 4:
		w.reap()
		if random.IntN(4) == 0 {
			w.membership = nil
		}
	default:
		w.loseOrRun(random)
	}
}

func (w *world) loseOrRun(random *rand.Rand) {
	pods := w.podNames()
	if len(pods) == 0 {
		return
	}
	name := pods[random.IntN(len(pods))]
	if podstate.Terminating(w.pods[name]) {
		return
	}
	switch choice := random.IntN(8); {
	case choice == 0 && name != coordinator:
		w.end(name, 1)
	case choice == 1:
		w.evict(name)
	case choice == 2:
		delete(w.pods, name)
	default:
		w.run(name)
	}
}

func TestACoordinatorThatIsRefusedAgainAndAgainIsMadeEverLessOften(t *testing.T) {
	w := settled(t, ledJob())
	for begun := w.now; w.now.Sub(begun) < time.Hour; w.now = w.now.Add(time.Second) {
		pod := w.pod(coordinator)
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "OutOfcpu"
		w.settle()
	}
	if got := w.created[coordinator]; got < 10 || got > 25 {
		t.Errorf("it is made %d times in an hour", got)
	}
	w.expectPhase(v2alpha1.JobStarting)
	w.now = w.now.Add(disruptions.LongestBackoff)
	w.settle()
	w.run(coordinator)
	w.settle()
	if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasDisrupted) {
		t.Errorf("the trouble is over at once: %+v", w.job.Status.Conditions)
	}
	w.now = w.now.Add(disruptions.LongestBackoff)
	w.settle()
	if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasDisrupted) {
		t.Errorf("the trouble is never over: %+v", w.job.Status.Conditions)
	}
}

func TestAReplicaThatIsInterruptedAgainAndAgainIsReplacedEverLessOften(t *testing.T) {
	for _, reason := range []string{"OutOfcpu", "Evicted", "NodeShutdown", "Preempting"} {
		t.Run(reason, func(t *testing.T) {
			w := led(t, ledJob())
			w.ask(v2alpha1.TaskTypeCollector)
			w.settle()
			w.run(coordinator)
			interrupt := func(during time.Duration) {
				for begun := w.now; w.now.Sub(begun) < during; w.now = w.now.Add(time.Second) {
					for name, pod := range w.pods {
						if name != coordinator {
							pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, reason
						}
					}
					w.settle()
				}
			}
			interrupt(10 * time.Minute)
			if got := len(w.created) - 1; got < 3 || got > 15 {
				t.Errorf("it is replaced %d times in ten minutes", got)
			}
			if !conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasDisrupted) {
				t.Errorf("nothing tells of the trouble: %+v", w.job.Status.Conditions)
			}
			interrupt(50 * time.Minute)
			if got := len(w.created) - 1; got < 10 || got > 25 {
				t.Errorf("it is replaced %d times in an hour", got)
			}
			place := membership.Endpoints{Job: w.job.Name, Namespace: w.job.Namespace, Ports: func(string, names.ReplicaType) int32 { return 1 }}
			if listed := len(place.Listed(&w.membership.Spec, &w.membership.Status).Collectors); listed != len(w.created)-1 {
				t.Errorf("%d URLs are listed, want those of all %d pods that there were", listed, len(w.created)-1)
			}
			w.now = w.now.Add(disruptions.LongestBackoff)
			w.settle()
			for range 2 {
				w.run(w.podNames()...)
				w.now = w.now.Add(disruptions.LongestBackoff)
				w.settle()
			}
			if conditions.IsTrue(&w.job.Status, v2alpha1.ConditionReplicasDisrupted) {
				t.Errorf("the trouble is never over: %+v", w.job.Status.Conditions)
			}
		})
	}
}

func TestAnInterruptedReplicaThatLivedForLongIsReplacedAtOnce(t *testing.T) {
	w := led(t, ledJob())
	w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	for lost := range 5 {
		w.run(w.podNames()...)
		w.now = w.now.Add(5 * time.Minute)
		for _, name := range w.podNames() {
			if name != coordinator {
				w.evict(name)
			}
		}
		w.settle()
		expect.MustEqual(t, "result", lost+2, len(w.created)-1)
	}
}

func TestACoordinatorThatLivedForLongDoesNotWaitForItsReplicas(t *testing.T) {
	w := led(t, ledJob())
	w.ask(v2alpha1.TaskTypeCollector)
	w.settle()
	w.run(coordinator)
	w.now = w.now.Add(2 * disruptions.LongestBackoff)
	for _, name := range w.podNames() {
		w.evict(name)
	}
	w.settle()
	expect.Equal(t, "the coordinator was made times", 2, w.created[coordinator])
}

// rivals adds two collectors whose first replacements have one name.
func (w *world) rivals() [2]string {
	w.t.Helper()
	earlier := map[string]v2alpha1.Member{}
	for i := range 1_000_000 {
		slot := fmt.Sprintf("rival-%d", i)
		member := v2alpha1.Member{Slot: slot, Task: v2alpha1.TaskTypeCollector, PodName: names.ReplicaPod("job", names.ReplicaTypeCollector, names.Suffix(slot))}
		next := membership.PodName("job", &member, 1)
		if rival, found := earlier[next]; found && rival.PodName != member.PodName {
			w.membership.Spec.Members = append(w.membership.Spec.Members, rival, member)
			return [2]string{rival.Slot, slot}
		}
		earlier[next] = member
	}
	w.t.Fatal("no two collectors have one name")
	return [2]string{}
}

func TestReplicasThatAreLostAtOnceNeverGetOneName(t *testing.T) {
	w := led(t, ledJob())
	slots := w.rivals()
	w.settle()
	first, second := w.current(slots[0])[0], w.current(slots[1])[0]
	delete(w.pods, first)
	delete(w.pods, second)
	w.settle()
	first, second = w.current(slots[0])[0], w.current(slots[1])[0]
	w.expectPods(coordinator, first, second)
	if lost := w.membership.Status.Losses; lost != 3 {
		t.Errorf("%d losses are counted, want 2 and one for the name that is left out", lost)
	}
}

// TestASlotThatHasTheNameOfAnothersPodGetsAnother covers an earlier operator that gave both one
// name.
func TestASlotThatHasTheNameOfAnothersPodGetsAnother(t *testing.T) {
	for owner := range 2 {
		w := led(t, ledJob())
		slots := w.rivals()
		w.settle()
		shared := membership.PodName("job", &w.membership.Spec.Members[0], 1)
		for i := range w.membership.Status.Slots {
			pod := w.pods[w.current(slots[i])[0]]
			delete(w.pods, pod.Name)
			if i == owner {
				pod = pod.DeepCopy()
				pod.Name, pod.UID = shared, "shared"
				w.pods[shared] = pod
			}
		}
		for i := range w.membership.Status.Slots {
			w.membership.Status.Slots[i].Losses, w.membership.Status.Slots[i].ObservedPod = 1, ""
		}
		w.settle()
		if got := w.current(slots[owner])[0]; got != shared || w.pod(shared).UID != "shared" {
			t.Errorf("owner %d: its pod is %s, want %s as it was", owner, got, shared)
		}
		w.expectPods(coordinator, shared, w.current(slots[1-owner])[0])
	}
}

// TestACoordinatorThatSucceededAndIsGoneBeforeItIsSeenIsMadeAgain documents an accepted limit:
// nothing records such a success.
func TestACoordinatorThatSucceededAndIsGoneBeforeItIsSeenIsMadeAgain(t *testing.T) {
	w := led(t, ledJob())
	w.end(coordinator, 0)
	delete(w.pods, coordinator)
	w.settle()
	w.expectPods(coordinator)
	w.expectPhase(v2alpha1.JobStarting)
	expect.Equal(t, "it was created", 2, w.created[coordinator])
}

func TestTheMessageOfAJobWhoseCoordinatorDoesNotRunIsTrue(t *testing.T) {
	w := led(t, ledJob())
	expect := func(want string) {
		t.Helper()
		w.expectPhase(v2alpha1.JobStarting)
		expect.Equal(t, "the job", want, conditionMessage(&w.job.Status, v2alpha1.ConditionCreated))
	}
	w.terminate(coordinator)
	w.step()
	expect("coordinator job-coordinator is terminating and is recreated once it is gone")
	delete(w.pods, coordinator)
	observed := w.observe()
	observed.Refused = map[string]state.Refusal{string(names.ReplicaTypeCoordinator): {Until: w.now.Add(time.Hour)}}
	w.job.Status = Decide(observed).Status
	expect("the coordinator is missing: the API server refused it, and the operator retries")
	w.step()
	expect("the coordinator is gone and is recreated")
	w.settle()
	expect("coordinator job-coordinator is created")
}
