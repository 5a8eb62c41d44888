// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/gangs"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// served returns the gang schedulers whose API is served, by setting and version.
func served(versions ...string) []gang.Provider {
	return slices.DeleteFunc(gang.Providers(), func(provider gang.Provider) bool {
		return !slices.Contains(versions, string(provider.Name)+"/"+provider.GVK.Version)
	})
}

// These are schedulers whose PodGroups are mutable, have a mutable minimum, and are immutable.
const (
	changeable   = "volcano/v1beta1"
	countable    = "kubernetes/v1beta1"
	unchangeable = "kubernetes/v1alpha2"
)

// provider is the scheduler of the world's gangs, nil for none.
func (w *world) provider() *gang.Provider {
	if w.group == nil {
		return nil
	}
	return gang.ProviderOf(gang.Providers(), w.group.GroupVersionKind())
}

func (w *world) actOnGroup(decision *Decision) (changed bool) {
	for _, group := range decision.DeletePodGroups {
		isThere := func() bool {
			return w.group != nil && w.group.GetUID() == group.GetUID() && w.group.GetDeletionTimestamp() == nil
		}
		if isThere() {
			w.write(func() {
				if isThere() {
					w.group.SetDeletionTimestamp(&metav1.Time{Time: w.now})
				}
			})
			w.reapGroup()
			changed = true
		}
	}
	switch create, update := decision.CreatePodGroup, decision.UpdatePodGroup; {
	case create != nil && w.group == nil:
		w.write(func() {
			if w.group != nil {
				w.failed = w.group.GetDeletionTimestamp() != nil
				return
			}
			w.uids++
			w.group = create.DeepCopy()
			w.group.SetUID(types.UID(fmt.Sprintf("group-%d", w.uids)))
		})
		return true
	case create != nil && w.group.GetDeletionTimestamp() != nil, update != nil && w.group == nil:
		w.failed = true
	case update != nil:
		if w.group.GroupVersionKind().Version == "v1alpha2" {
			w.t.Fatalf("a PodGroup is changed that cannot be")
		}
		w.write(func() {
			if w.failed = w.group == nil; !w.failed {
				w.group.Object["spec"] = update.DeepCopy().Object["spec"]
			}
		})
		return true
	}
	return changed
}

// reapGroup removes a terminating PodGroup. That of Kubernetes itself stays until all its pods have
// finished.
func (w *world) reapGroup() bool {
	if w.group == nil || w.group.GetDeletionTimestamp() == nil || w.provider().Name == gang.Kubernetes && len(w.liveMembers()) > 0 {
		return false
	}
	w.group = nil
	return true
}

// liveMembers returns the pods of the gang that have not finished. Schedulers count these.
func (w *world) liveMembers() []*corev1.Pod {
	var live []*corev1.Pod
	for _, pod := range w.pods {
		if gang.IsMember(pod) && !podstate.Finished(pod) {
			live = append(live, pod)
		}
	}
	return live
}

// schedule assigns a node to a pod as gang schedulers do, and reports whether the pod has one.
func (w *world) schedule(pod *corev1.Pod) bool {
	if node := placements.PlacedOn(pod); w.hasAllocator() && node != "" && pod.Spec.NodeName == "" && !w.fleet.fits(pod, node) {
		w.waits(pod)
		return false
	}
	if pod.Spec.NodeName = placements.PlacedOn(pod); !state.AsksForGang(w.job) && !gang.IsMember(pod) {
		return true
	}
	if gang.IsMember(pod) && (w.group == nil || len(w.liveMembers()) < int(w.provider().Least(w.group))) && pod.Annotations["bound"] == "" {
		pod.Spec.NodeName = ""
		return false
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "bound", "true")
	if pod.Spec.NodeName == "" {
		pod.Spec.NodeName = "node"
	}
	return true
}

// scheduleAll assigns a node to all pods that can have one.
func (w *world) scheduleAll() {
	for _, name := range w.podNames() {
		if pod := w.pods[name]; !podstate.Finished(pod) {
			w.schedule(pod)
		}
	}
}

// anyGangs lets a job request a gang or not, and returns the available schedulers.
func anyGangs(random *rand.Rand, spec *v2alpha1.DIJobSpec) state.Gangs {
	choice := random.IntN(4)
	if choice == 0 {
		return state.Gangs{}
	}
	spec.Scheduling = &v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}}
	if random.IntN(2) == 0 {
		spec.Scheduling.Gang.MinAvailable = ptr.To(1 + random.Int32N(4))
	}
	return state.Gangs{Served: served([]string{changeable, unchangeable, countable}[choice-1])}
}

// waitsInGang reports whether a pod waits for a node with its gang, so that its deletion loses
// nothing.
func waitsInGang(observed *Observed, pod *corev1.Pod) bool {
	return state.AsksForGang(observed.Job) && gang.IsMember(pod) && pod.Spec.NodeName == ""
}

// checkGang checks that the PodGroup exists before any pod of it is created, and that its minimum
// does not exceed the pods that will exist.
func (w *world) checkGang(pod *corev1.Pod) {
	w.t.Helper()
	if !state.AsksForGang(w.job) || !w.isDecidedSynced {
		return
	}
	isStarted := slices.ContainsFunc(w.podNames(), func(name string) bool { return w.pods[name].Spec.NodeName != "" })
	switch isMember := gang.IsMember(pod); {
	case !isMember && !isStarted:
		w.t.Fatalf("pod %s is created without its gang", pod.Name)
	case isMember && (w.group == nil || w.group.GetDeletionTimestamp() != nil):
		w.t.Fatalf("pod %s is created before its gang is told of", pod.Name)
	case isMember && w.provider().Least(w.group) > sizing.Wanted(w.job).Total:
		w.t.Fatalf("pod %s is created in a gang of %d, and is to be of %d", pod.Name, w.provider().Least(w.group), sizing.Wanted(w.job).Total)
	}
}

// checkGroupAtRest checks that a PodGroup exists while a pod waits in it, and not after the job has
// finished or is suspended.
func (w *world) checkGroupAtRest() {
	w.t.Helper()
	if w.group != nil && w.group.GetDeletionTimestamp() == nil && (state.IsFinished(&w.job.Status) || state.IsSuspended(w.job) || !state.AsksForGang(w.job)) {
		w.t.Fatalf("the gang of a job that is %s, suspended %v, is still told of", w.job.Status.Phase, state.IsSuspended(w.job))
	}
	for _, pod := range w.liveMembers() {
		switch {
		case pod.Spec.NodeName != "" || state.IsFinished(&w.job.Status) || !state.AsksForGang(w.job):
		case w.group == nil:
			w.t.Fatalf("pod %s waits by a gang that nobody is told of", pod.Name)
		case int(w.provider().Least(w.group)) > len(w.liveMembers()):
			w.t.Fatalf("pod %s waits for ever: %d are to be placed at once, and %d are there", pod.Name, w.provider().Least(w.group), len(w.liveMembers()))
		}
	}
}

// gangWorld returns a job of four replicas that requests a gang.
func gangWorld(t *testing.T, scheduler string) *world {
	t.Helper()
	spec := trainingJob()
	spec.Scheduling = &v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}}
	w := newWorld(t, spec)
	w.gangs = state.Gangs{Served: served(scheduler)}
	return w
}

// startedGang returns a running job with a gang.
func startedGang(t *testing.T, scheduler string) *world {
	t.Helper()
	w := gangWorld(t, scheduler)
	w.settle()
	w.startAll()
	w.expectPhase(v2alpha1.JobRunning)
	return w
}

// startAll runs all pods that get a node.
func (w *world) startAll() {
	w.t.Helper()
	w.settle()
	w.scheduleAll()
	for _, name := range w.podNames() {
		if pod := w.pods[name]; pod.Spec.NodeName != "" && !podstate.Finished(pod) {
			w.run(name)
		}
	}
	w.settle()
}

func (w *world) expectLeast(want int32) {
	w.t.Helper()
	switch {
	case want == 0 && w.group != nil:
		w.t.Fatalf("there is %s, and none is wanted", w.group.GetName())
	case want == 0:
	case w.group == nil:
		w.t.Fatalf("there is no PodGroup, one of %d is wanted", want)
	case w.provider().Least(w.group) != want:
		w.t.Fatalf("%d are to be placed at once, want %d", w.provider().Least(w.group), want)
	}
}

// gangState returns the condition GangScheduled, "" for none.
func (w *world) gangState() string {
	condition := conditions.Find(&w.job.Status, v2alpha1.ConditionGangScheduled)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

func (w *world) expectGang(want string) {
	w.t.Helper()
	if got := w.gangState(); got != want {
		w.t.Fatalf("condition GangScheduled is %q, want %q", got, want)
	}
}

// uidsOf returns the UIDs of the pods, by name.
func (w *world) uidsOf() map[string]types.UID {
	found := map[string]types.UID{}
	for name, pod := range w.pods {
		found[name] = pod.UID
	}
	return found
}

// onEachScheduler runs a test for each kind of PodGroup.
func onEachScheduler(t *testing.T, begin func(*testing.T, string) *world, test func(w *world)) {
	t.Helper()
	for _, scheduler := range []string{changeable, countable, unchangeable} {
		t.Run(scheduler, func(t *testing.T) {
			test(begin(t, scheduler))
		})
	}
}

func TestAGangIsToldOfWhileTheJobLives(t *testing.T) {
	onEachScheduler(t, gangWorld, func(w *world) {
		w.settle()
		w.expectLeast(4)
		w.expectGang("False GangWaiting")
		if owner := metav1.GetControllerOf(w.group); owner == nil || owner.UID != w.job.UID {
			w.t.Fatalf("the PodGroup is owned by %v", owner)
		}
		w.pod("job-learner-0").Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu.",
		}}
		w.settle()
		w.expectGang("False Unschedulable")
		w.startAll()
		w.expectGang("True GangPlaced")
		for _, name := range w.podNames() {
			w.end(name, 0)
		}
		w.settle()
		w.expectPhase(v2alpha1.JobSucceeded)
		w.expectLeast(0)
		told := slices.DeleteFunc(slices.Clone(w.events), func(reason string) bool { return reason[:min(4, len(reason))] != "Gang" })
		expect.Equal(w.t, "events", []string{"GangUnschedulable", "GangPlaced"}, told)
	})
}

func TestARestartPlacesTheGangAnew(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		w.end("job-learner-0", 1)
		w.settle()
		w.expectGang("False GangWaiting")
		w.expectLeast(4)
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.expectGang("True GangPlaced")
	})
}

func TestAReplicaThatIsMadeAgainWhenOthersHaveSucceededDoesNotWaitForThem(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		w.end("job-learner-0", 0)
		w.end("job-collector-0", 0)
		w.end("job-collector-1", 0)
		w.settle()
		w.evict("job-evaluator-0")
		w.startAll()
		if pod := w.pod("job-evaluator-0"); pod.Status.Phase != corev1.PodRunning {
			w.t.Fatalf("the pod is %s, and %v is told of", outlinePod(pod), w.group)
		}
	})
}

func TestAReplicaThatWaitsForItsGangIsNotLeftAloneWhenTheOthersSucceed(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		w.evict("job-learner-0")
		w.settle()
		w.end("job-collector-0", 0)
		w.end("job-collector-1", 0)
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		if pod := w.pod("job-learner-0"); pod.Status.Phase != corev1.PodRunning {
			w.t.Fatalf("the pod is %s, and %v is told of", outlinePod(pod), w.group)
		}
	})
}

// TestNobodyWaitsByAGangThatIsNotToldOfAnyMore: pods that are created meanwhile are not in the
// gang, and the others would wait for them.
func TestNobodyWaitsByAGangThatIsNotToldOfAnyMore(t *testing.T) {
	w := gangWorld(t, unchangeable)
	w.settle()
	w.schedule(w.pod("job-learner-0"))
	w.group.SetDeletionTimestamp(&metav1.Time{Time: w.now})
	delete(w.pods, "job-evaluator-0")
	w.startAll()
	w.expectPhase(v2alpha1.JobRunning)
	w.expectGang("True GangPlaced")
}

func TestAResizeOfAGangThatRunsTouchesNobody(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		// The minimum follows the size if it is mutable, and stays otherwise.
		isMutable := w.group.GroupVersionKind().Version != "v1alpha2"
		follows := func(size int32) {
			if isMutable {
				w.expectLeast(size)
			} else {
				w.expectLeast(4)
			}
		}
		before := w.uidsOf()
		w.resize(3)
		w.startAll()
		follows(5)
		w.expectPhase(v2alpha1.JobRunning)
		w.resize(1)
		w.startAll()
		follows(3)
		delete(before, "job-collector-1")
		expect.Equal(w.t, "pods", before, w.uidsOf())
		w.expectPhase(v2alpha1.JobRunning)
		w.evict("job-collector-0")
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.end("job-learner-0", 1)
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.expectLeast(3)
	})
}

func TestAResizeOfAGangThatWaitsChangesWhatItWaitsFor(t *testing.T) {
	onEachScheduler(t, gangWorld, func(w *world) {
		w.settle()
		w.resize(4)
		w.expectLeast(6)
		w.resize(1)
		w.expectLeast(3)
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.expectPods("job-learner-0", "job-collector-0", "job-evaluator-0")
	})
}

func TestASuspendedGangIsToldOfAnewWhenItGoesOn(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		w.end("job-evaluator-0", 0)
		w.settle()
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
		w.settle()
		w.expectLeast(0)
		w.expectGang("False Suspended")
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
		w.settle()
		w.expectLeast(3)
		w.startAll()
		w.expectGang("True GangPlaced")
		w.expectPhase(v2alpha1.JobRunning)
	})
}

func TestAJobThatAsksForNoGangAnyMoreGoesOnWithout(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		before := w.uidsOf()
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Scheduling = nil })
		w.settle()
		w.expectGang("")
		if w.group != nil && w.group.GetDeletionTimestamp() == nil {
			w.t.Errorf("its gang is still told of")
		}
		expect.Equal(w.t, "pods", before, w.uidsOf())
	})
}

func TestAGangWaitsWhereNobodyWouldPlaceIt(t *testing.T) {
	w := gangWorld(t, "")
	w.settle()
	w.expectPods()
	w.expectPhase(v2alpha1.JobPending)
	w.expectGang("False NoGangScheduler")
	if again := Decide(w.observe()).RequeueAfter; again != gangs.RetryInterval {
		t.Errorf("looks again after %v, want %v", again, gangs.RetryInterval)
	}
	if !slices.Contains(w.events, "NoGangScheduler") {
		t.Errorf("events are %v", w.events)
	}
	w.gangs = state.Gangs{Served: served(unchangeable)}
	w.startAll()
	w.expectPhase(v2alpha1.JobRunning)
	w.expectGang("True GangPlaced")
}

func TestAJobThatRanBeforeItsGangWasActedOnGoesOn(t *testing.T) {
	for _, scheduler := range []string{"", changeable, unchangeable} {
		t.Run("then "+scheduler, func(t *testing.T) {
			w := settled(t, trainingJob())
			w.startAll()
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Scheduling = &v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}} })
			for _, pod := range w.pods {
				pod.Spec.NodeName = "node"
			}
			w.gangs = state.Gangs{Served: served(scheduler)}
			w.settle()
			w.expectGang("True GangPlaced")
			w.evict("job-learner-0")
			w.startAll()
			w.expectPhase(v2alpha1.JobRunning)
			w.expectGang("True GangPlaced")
		})
	}
}

func TestAGangThatWaitsMovesToTheSchedulerThatIsChosenAndOneThatRunsStays(t *testing.T) {
	w := gangWorld(t, unchangeable)
	w.settle()
	w.gangs.Served = served(changeable, unchangeable)
	w.settle()
	if name := w.provider().Name; name != gang.Volcano {
		t.Fatalf("the gang that waits is left to %s", name)
	}
	w.startAll()
	w.expectPhase(v2alpha1.JobRunning)
	w.gangs.Setting = gang.Kubernetes
	w.settle()
	if name := w.provider().Name; name != gang.Volcano {
		t.Fatalf("the gang that runs is left to %s", name)
	}
}

// TestAGangThatWaitsBehindAGateIsNoWarning: Kueue removes the gate, and no scheduler has tried to
// place the pods yet.
func TestAGangThatWaitsBehindAGateIsNoWarning(t *testing.T) {
	onEachScheduler(t, gangWorld, func(w *world) {
		w.kueue = newKueue()
		w.kueue.isOpen = false
		w.job.Labels = map[string]string{queueing.LabelQueue: "team"}
		w.settle()
		w.expectAdmitted(corev1.ConditionFalse, v2alpha1.ReasonWaitingInQueue)
		w.expectGang("False GangWaiting")
		if slices.Contains(w.events, v2alpha1.ReasonGangUnschedulable) {
			w.t.Fatalf("events are %v", w.events)
		}
		w.kueue.isOpen = true
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.expectGang("True GangPlaced")
	})
}

func TestAPreemptibleGangThatLosesItsPlaceIsPlacedNoMore(t *testing.T) {
	preemptible := func(t *testing.T, scheduler string) *world {
		t.Helper()
		w := gangWorld(t, scheduler)
		w.job.Spec.Preemptible = true
		w.job.Status.Allocation = []string{"a", "a", "b", "b"}
		w.startAll()
		return w
	}
	onEachScheduler(t, preemptible, func(w *world) {
		w.expectGang("True GangPlaced")
		w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = nil })
		w.settle()
		w.expectPods()
		w.expectGang("False GangWaiting")
		w.change(func(job *v2alpha1.DIJob) { job.Status.Allocation = []string{"b", "b", "b"} })
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.expectGang("True GangPlaced")
		w.expectLeast(3)
	})
}

// TestAGangGoesOnWithoutItsSchedulerWhereOthersHaveSucceeded: the last replica does not start the
// job in part.
func TestAGangGoesOnWithoutItsSchedulerWhereOthersHaveSucceeded(t *testing.T) {
	onEachScheduler(t, startedGang, func(w *world) {
		w.end("job-learner-0", 0)
		w.end("job-collector-0", 0)
		w.end("job-collector-1", 0)
		w.settle()
		w.gangs, w.group = state.Gangs{}, nil
		delete(w.pods, "job-evaluator-0")
		w.startAll()
		w.expectPhase(v2alpha1.JobRunning)
		w.expectGang("True GangPlaced")
	})
}

func TestACoordinatorLedJobHasNoGang(t *testing.T) {
	job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{
		Lifecycle: v2alpha1.LifecycleCoordinatorLed, Scheduling: &v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}},
	}}
	if gangs.MayExist(job, nil) {
		t.Error("it is asked for its gang")
	}
}
