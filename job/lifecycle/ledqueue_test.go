// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

const (
	collecting = v2alpha1.TaskTypeCollector
	learning   = v2alpha1.TaskTypeLearner
)

// queuedLed returns a queued coordinator-led job whose coordinator runs.
func queuedLed(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, ledJob())
	w.kueue = newKueue()
	w.job.Labels = map[string]string{queueing.LabelQueue: "team", queueing.LabelPriorityClass: "high"}
	w.progress()
	w.expectGroups(1)
	return w
}

// progress settles a job, and makes all run that Kueue has admitted.
func (w *world) progress() {
	w.t.Helper()
	w.settle()
	w.run(w.admitted()...)
	w.settle()
}

// askAll adds members of a task in one request, and returns their slots.
func (w *world) askAll(task v2alpha1.TaskType, count int) []string {
	var added []string
	for range count {
		added = append(added, w.ask(task))
	}
	return added
}

// dismissSlots removes members as di-server would, and lets their drain time pass.
func (w *world) dismissSlots(slots ...string) {
	w.membership.Spec.Members = slices.DeleteFunc(w.membership.Spec.Members, func(member v2alpha1.Member) bool { return slices.Contains(slots, member.Slot) })
	w.drain()
}

// metaOf returns Kueue's metadata of the first pod of a slot.
func (w *world) metaOf(slot string) queueing.PodMeta {
	w.t.Helper()
	return queueing.FromPod(w.pod(w.current(slot)[0]))
}

func TestMembersThatAreAddedTogetherAreAGroup(t *testing.T) {
	w := queuedLed(t)
	w.kueue.isOpen = false
	collectors := w.askAll(collecting, 2)
	learner, unit := w.ask(learning), w.ask(learning, 2, 1)
	w.settle()
	w.expectGroups(1, 6)
	meta := w.metaOf(collectors[0])
	if meta.Queue != "team" || meta.PriorityClass != "high" || meta.Size != 6 {
		t.Errorf("meta are %+v", meta)
	}
	for _, slot := range []string{learner, unit} {
		for _, name := range w.current(slot) {
			expect.Equal(t, "meta of "+name, meta, queueing.FromPod(w.pod(name)))
		}
	}
	expect.Equal(t, "admitted", []string{coordinator}, w.admitted())
	w.expectPhase(v2alpha1.JobRunning)
	w.kueue.isOpen = true
	w.progress()
	expect.Equal(t, "the number of admitted pods", 7, len(w.admitted()))
	w.expectMade(nil)
	w.expectAdmitted(corev1.ConditionTrue, v2alpha1.ConditionAdmitted)

	w.askAll(collecting, 3)
	w.progress()
	w.expectGroups(1, 3, 6)
	w.ask(collecting)
	w.progress()
	w.expectGroups(2, 3, 6)
	w.expectMade(nil)
}

func TestAGroupOfMembersThatLeavesAsAWholeGivesItsQuotaBack(t *testing.T) {
	w := queuedLed(t)
	first, second := w.askAll(collecting, 2), []string(nil)
	w.progress()
	second = w.askAll(collecting, 3)
	w.progress()
	w.expectGroups(1, 2, 3)
	name := w.metaOf(second[0]).Group
	w.dismissSlots(second...)
	w.progress()
	w.expectGroups(1, 2)
	expect.Equal(t, "groups of Kueue", 1, len(w.kueue.groups))
	// A name never comes again.
	third := w.askAll(collecting, 3)
	w.progress()
	if again := w.metaOf(third[0]).Group; again == name || again == w.metaOf(first[0]).Group {
		t.Errorf("the group is %s again", again)
	}
	w.expectMade(nil)
}

func TestMembersThatLeaveAnAdmittedGroupKeepTheirPlacesForTheNextOfTheirShape(t *testing.T) {
	w := queuedLed(t)
	w.job.Spec.Tasks[2].Template = jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"learns"}]}}`)
	collectors := w.askAll(collecting, 4)
	w.ask(learning)
	w.progress()
	group := w.metaOf(collectors[0])
	w.dismissSlots(collectors[1:]...)
	w.progress()
	w.expectGroups(1, 2)
	w.expectMade(nil)

	// There is no quota, and these need none. The learner's place is taken.
	w.kueue.isOpen = false
	added, other := w.askAll(collecting, 2), w.askAll(learning, 2)
	w.progress()
	expect.Equal(t, "the group", group, w.metaOf(added[0]))
	expect.Equal(t, "the group", group, w.metaOf(added[1]))
	w.expectGroups(1, 2, 4)
	for _, slot := range other {
		if meta := w.metaOf(slot); meta.Group == group.Group {
			t.Errorf("learner %s is in the group of collectors that left", slot)
		}
	}
	expect.Equal(t, "the number of admitted pods", 5, len(w.admitted()))

	// One more than there are places.
	w.dismissSlots(other...)
	more := w.askAll(collecting, 3)
	w.progress()
	w.expectGroups(1, 2, 5)
	expect.Equal(t, "the group", group, w.metaOf(more[0]))
	w.expectMade(nil)
}

func TestWhatIsLeftOfAWaitingGroupOfMembersIsANewGroup(t *testing.T) {
	w := queuedLed(t)
	w.kueue.isOpen = false
	collectors := w.askAll(collecting, 4)
	w.settle()
	before := w.metaOf(collectors[0])
	w.dismissSlots(collectors[3])
	w.settle()
	w.expectGroups(1, 3)
	if after := w.metaOf(collectors[0]); after.Group == before.Group || after.Size != 3 {
		t.Errorf("the rest queues as %+v", after)
	}
	w.dismissSlots(collectors[1:]...)
	w.settle()
	w.expectGroups(2)
	w.kueue.isOpen = true
	w.progress()
	expect.Equal(t, "the number of admitted pods", 2, len(w.admitted()))
	expect.Equal(t, "groups of Kueue", 0, len(w.kueue.groups))
}

func TestALostMemberTakesItsPlaceAgainWithoutAnotherAdmission(t *testing.T) {
	for name, lose := range map[string]func(w *world, pod string){
		"evicted by its node": func(w *world, pod string) { w.evict(pod) },
		"deleted by hand":     func(w *world, pod string) { w.terminate(pod) },
		"failed":              func(w *world, pod string) { w.end(pod, 1) },
		"deleted by hand, and its program ends well": func(w *world, pod string) {
			w.terminate(pod)
			w.end(pod, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := queuedLed(t)
			slots, unit := w.askAll(collecting, 2), w.ask(learning, 2, 1)
			w.progress()
			before := w.metaOf(slots[0])
			w.kueue.isOpen = false
			for _, slot := range []string{slots[0], unit} {
				former := w.current(slot)
				lose(w, former[len(former)-1])
				w.progress()
				w.progress()
				if now := w.current(slot); now[0] == former[0] {
					t.Fatalf("the pod of slot %s is %s again", slot, now[0])
				}
				expect.Equal(t, "the group", before, w.metaOf(slot))
				expect.Equal(t, "the number of admitted pods", 6, len(w.admitted()))
			}
			w.expectGroups(1, 5)
		})
	}
}

func TestALostMemberWaitsUntilTheFormerPodHasGivenItsPlaceBack(t *testing.T) {
	w := queuedLed(t)
	slots := w.askAll(collecting, 2)
	w.progress()
	former := w.current(slots[0])[0]
	w.terminate(former)
	w.pods[former].DeletionGracePeriodSeconds = ptr.To(int64(30))
	w.settle()
	if pod := w.pods[w.current(slots[0])[0]]; pod != nil {
		t.Fatalf("pod %s is created while Kueue counts %s", pod.Name, former)
	}
	w.end(former, 1)
	w.pods[former].DeletionGracePeriodSeconds = ptr.To(int64(0))
	w.progress()
	w.expectGroups(1, 2)
	expect.Equal(t, "the number of admitted pods", 3, len(w.admitted()))
}

func TestAGroupOfMembersThatKueueEvictsQueuesAgainAsAWhole(t *testing.T) {
	w := queuedLed(t)
	first := w.askAll(collecting, 2)
	w.progress()
	second, unit := w.askAll(collecting, 2), w.ask(learning, 2, 1)
	w.progress()
	before, kept := w.metaOf(second[0]), w.current(first[0])
	w.kueue.isOpen = false
	w.evictGroup(before.Group)
	w.settle()
	w.expectPhase(v2alpha1.JobRunning)
	w.expectGroups(1, 2, 5)
	after := w.metaOf(second[0])
	if after.Group == before.Group || after.Size != 5 || w.metaOf(unit) != after {
		t.Errorf("the members queue as %+v and %+v, and did as %+v", after, w.metaOf(unit), before)
	}
	expect.Equal(t, "the other group's pods", kept, w.current(first[0]))
	expect.Equal(t, "the number of admitted pods", 3, len(w.admitted()))
	w.kueue.isOpen = true
	w.progress()
	expect.Equal(t, "the number of admitted pods", 8, len(w.admitted()))
}

func TestKueueEvictsTheCoordinatorAndItsMembersStay(t *testing.T) {
	w := queuedLed(t)
	slots := w.askAll(collecting, 2)
	w.progress()
	before := w.metaOf(slots[0])
	w.kueue.isOpen = false
	pod := w.pod(coordinator)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "TerminationTarget", Status: corev1.ConditionTrue, Message: "Preempted"})
	w.terminate(coordinator)
	w.settle()
	w.expectPhase(v2alpha1.JobStarting)
	expect.Equal(t, "the number of admitted pods", 2, len(w.admitted()))
	w.kueue.isOpen = true
	w.progress()
	w.expectPhase(v2alpha1.JobRunning)
	expect.Equal(t, "the group", before, w.metaOf(slots[0]))
	expect.Equal(t, "how often the coordinator was created", 2, w.created[coordinator])
}

func TestMembersThatEarlierReleasesDidNotGroupContinueUntouched(t *testing.T) {
	w := queuedLed(t)
	slots := w.askAll(collecting, 3)
	w.progress()
	// An earlier release recorded no group, and each pod queued by itself.
	for i := range w.membership.Status.Slots {
		w.membership.Status.Slots[i].Group, w.membership.Status.Slots[i].Shape = 0, ""
	}
	w.membership.Status.Groups, w.membership.Status.LastGroup = nil, 0
	w.kueue.groups = map[string]*queuedGroup{}
	for _, slot := range slots {
		pod := w.pod(w.current(slot)[0])
		delete(pod.Labels, queueing.LabelGroup)
		delete(pod.Annotations, queueing.AnnotationGroupSize)
	}
	w.progress()
	w.expectMade(nil)
	w.evict(w.current(slots[0])[0])
	w.progress()
	w.expectGroups(4)
	w.askAll(collecting, 2)
	w.progress()
	w.expectGroups(4, 2)
}

func TestMembersThatHoldStateQueueEachByItself(t *testing.T) {
	w := queuedLed(t)
	w.job.Spec.Tasks[2].Drain = &v2alpha1.Drain{}
	w.askAll(learning, 2)
	w.askAll(collecting, 2)
	w.progress()
	w.expectGroups(3, 2)
}

func TestAMemberThatNeedsOtherResourcesQueuesByItself(t *testing.T) {
	w := queuedLed(t)
	slots := w.askAll(collecting, 3)
	w.progress()
	w.job.Spec.Tasks[1].Template = jobs.Raw(`{"spec":{"containers":[{"name":"di-container","image":"another"}]}}`)
	w.evict(w.current(slots[0])[0])
	w.progress()
	w.expectGroups(2, 2)
	expect.Equal(t, "the number of admitted pods", 4, len(w.admitted()))
}

func TestGroupsOfMembersAreBounded(t *testing.T) {
	w := queuedLed(t)
	for range limits.GrowthGroups + 1 {
		w.askAll(collecting, 2)
		w.progress()
	}
	groups, alone := w.groups()
	expect.Equal(t, "groups and pods without one", []int{limits.GrowthGroups, 3}, []int{len(groups), alone})
}

func TestAResumedCoordinatorLedJobHasGroupsOfNewNames(t *testing.T) {
	w := queuedLed(t)
	slots := w.askAll(collecting, 2)
	w.progress()
	before := w.metaOf(slots[0])
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.settle()
	w.expectPods()
	expect.Equal(t, "groups of Kueue", 0, len(w.kueue.groups))
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	w.progress()
	slots = w.askAll(collecting, 2)
	w.progress()
	if after := w.metaOf(slots[0]); after.Group == before.Group {
		t.Errorf("group %s comes again", after.Group)
	}
}

// TestAQueuedCoordinatorLedJobGetsItsMembersWhateverHappens applies random events of Kueue, nodes, coordinators and users.
// Once they stop, the job must get all its members.
func TestAQueuedCoordinatorLedJobGetsItsMembersWhateverHappens(t *testing.T) {
	for seed := range 4 * seeds {
		random := newRandom(seed)
		w := queuedLed(t)
		for range 80 {
			w.ledQueueMischief(random)
		}
		w.kueue.isOpen = true
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
		for range 4 {
			// The backoff after losses ends.
			w.now = w.now.Add(10 * time.Minute)
			w.progress()
		}
		wanted := 1
		for i := range w.membership.Spec.Members {
			wanted += 1 + len(w.membership.Spec.Members[i].DDPGPUs)
		}
		if admitted := w.admitted(); len(admitted) != wanted || len(w.pods) != wanted {
			t.Fatalf("seed %d: %d pods are desired, and there are %s", seed, wanted, w.outline())
		}
		w.expectPhase(v2alpha1.JobRunning)
	}
}

// ledQueueMischief applies one random event to a queued coordinator-led job.
func (w *world) ledQueueMischief(random *rand.Rand) {
	members := slices.DeleteFunc(w.admitted(), func(name string) bool { return name == coordinator })
	one := func(names []string, do func(string)) func() {
		return func() {
			if len(names) > 0 {
				do(names[random.IntN(len(names))])
			}
		}
	}
	inList := func(do func()) func() {
		return func() {
			if w.membership != nil {
				do()
			}
		}
	}
	happenings := []func(){
		w.evictGroups,
		one(slices.Sorted(maps.Keys(w.kueue.groups)), w.evictGroup),
		func() { w.kueue.isOpen = !w.kueue.isOpen },
		one(members, func(name string) { w.toEnd(name, 1) }),
		one(members, w.evict),
		one(w.podNames(), func(name string) {
			if !podstate.Terminating(w.pods[name]) {
				w.terminate(name)
			}
		}),
		inList(func() { w.askAll(collecting, 1+random.IntN(3)) }),
		inList(func() { w.ask(learning, 2, 1) }),
		inList(func() {
			if count := len(w.membership.Spec.Members); count > 0 {
				w.dismissSlots(w.membership.Spec.Members[random.IntN(count)].Slot)
			}
		}),
		inList(func() {
			if count := len(w.membership.Spec.Members); count > 4 {
				w.membership.Spec.Members = w.membership.Spec.Members[:2]
			}
		}),
		func() {
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(random.IntN(4) == 0) })
		},
		func() { w.run(w.admitted()...) },
		func() { w.run(w.admitted()...) },
		func() { w.queue() },
		func() { w.queue() },
		func() { w.reap() },
		func() { w.step() },
	}
	happenings[random.IntN(len(happenings))]()
	if random.IntN(2) == 0 {
		w.step()
	}
}
