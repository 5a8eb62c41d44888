// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// ledStateful starts a coordinator-led job with two learners that hold state and one collector. All run.
func ledStateful(t *testing.T, drain v2alpha1.Drain) (w *world, slots []string) {
	t.Helper()
	spec := ledJob()
	spec.Tasks[2].Drain = &drain
	w = led(t, spec)
	for _, task := range []v2alpha1.TaskType{v2alpha1.TaskTypeLearner, v2alpha1.TaskTypeLearner, v2alpha1.TaskTypeCollector} {
		slots = append(slots, w.ask(task))
	}
	w.settle()
	for _, slot := range slots {
		w.run(w.current(slot)...)
	}
	w.settle()
	expect.Equal(t, "active", "0-3", published(w.job).Active)
	return w, slots
}

// remove removes a member as di-server does for a DELETE long ago.
func (w *world) remove(slot string) {
	w.membership.Spec.Members = slices.DeleteFunc(w.membership.Spec.Members, func(member v2alpha1.Member) bool { return member.Slot == slot })
	w.drain()
	w.settle()
}

// drain lets the drain time pass after the operator has seen which members are gone.
func (w *world) drain() {
	w.observe()
	w.now = w.now.Add(state.DefaultDrain)
}

func TestALearnerOfACoordinatorIsRemovedOnceEveryMemberAcknowledges(t *testing.T) {
	t.Parallel()
	w, slots := ledStateful(t, v2alpha1.Drain{})
	first, second, other := w.current(slots[0])[0], w.current(slots[1])[0], w.current(slots[2])[0]
	w.remove(slots[1])
	list := published(w.job)
	expect.Equal(t, "leaving", "2", list.Leaving)
	expect.Equal(t, "draining", true, conditions.IsTrue(&w.job.Status, v2alpha1.ConditionDraining))
	w.acknowledge(coordinator, first, second)
	w.settle()
	w.expectPods(coordinator, first, second, other)
	w.acknowledge(other)
	w.settle()
	w.expectPods(coordinator, first, other)
	expect.Equal(t, "active", "0-1,3", published(w.job).Active)
	expect.Equal(t, "drained", true, slices.Contains(w.events, v2alpha1.ReasonDrained))

	// A collector holds no state.
	w.remove(slots[2])
	w.expectPods(coordinator, first)
}

func TestAReplicaWhoseMemberIsGoneHasItsListedRankThoughItsPodSaysAnother(t *testing.T) {
	t.Parallel()
	w, slots := ledStateful(t, v2alpha1.Drain{})
	leaving := w.current(slots[1])[0]
	w.pod(leaving).Annotations[names.AnnotationRank] = "7"
	w.remove(slots[1])
	expect.Equal(t, "active", "0-3", published(w.job).Active)
	expect.Equal(t, "leaving", "2", published(w.job).Leaving)
	expect.Equal(t, "rank", int32(2), podstate.Rank(w.pod(leaving)))
}

func TestAReplacedReplicaOfACoordinatorKeepsItsRankAndHasNoHandshake(t *testing.T) {
	t.Parallel()
	w, slots := ledStateful(t, v2alpha1.Drain{})
	before := w.current(slots[1])[0]
	w.terminate(before)
	w.settle()
	after := w.current(slots[1])[0]
	if after == before {
		t.Fatal("the lost replica is not replaced")
	}
	expect.Equal(t, "rank", int32(2), podstate.Rank(w.pod(after)))
	added := w.ask(v2alpha1.TaskTypeLearner)
	w.settle()
	expect.Equal(t, "rank of a new one", int32(4), podstate.Rank(w.pod(w.current(added)[0])))
	w.run(after)
	w.settle()
	expect.Equal(t, "learners join together", "0-1,3", published(w.job).Active)
	w.run(w.current(added)[0])
	w.settle()
	expect.Equal(t, "active", "0-4", published(w.job).Active)
}

func TestARemovalByACoordinatorFailsOrHappensAtItsTimeout(t *testing.T) {
	t.Parallel()
	for action, want := range map[v2alpha1.DrainTimeoutAction]bool{v2alpha1.DrainKeep: true, v2alpha1.DrainRemove: false} {
		w, slots := ledStateful(t, v2alpha1.Drain{TimeoutSeconds: ptr.To[int32](60), OnTimeout: action})
		leaving := w.current(slots[1])[0]
		w.remove(slots[1])
		w.now = w.now.Add(time.Minute)
		w.settle()
		expect.Equal(t, "kept by "+string(action), want, w.pods[leaving] != nil)
		failed := conditions.Find(&w.job.Status, v2alpha1.ConditionDrainFailed)
		expect.Equal(t, "failed by "+string(action), want, failed != nil && strings.Contains(failed.Message, leaving))
		if !want {
			continue
		}
		// Another change of the members retries.
		w.remove(slots[2])
		expect.Equal(t, "leaving", "2", published(w.job).Leaving)
		w.allAcknowledge()
		w.settle()
		w.expectPods(coordinator, w.current(slots[0])[0])
	}
}

func TestARefusalFailsTheRemovalByACoordinatorAtOnce(t *testing.T) {
	t.Parallel()
	w, slots := ledStateful(t, v2alpha1.Drain{})
	leaving := w.current(slots[1])[0]
	w.remove(slots[1])
	w.refuse(w.current(slots[0])[0], "no memory")
	w.settle()
	failed := conditions.Find(&w.job.Status, v2alpha1.ConditionDrainFailed)
	if failed == nil || !strings.Contains(failed.Message, "no memory") || w.pods[leaving] == nil {
		t.Errorf("condition %+v", failed)
	}
}

func TestAUnitThatHoldsStateIsRemovedWhole(t *testing.T) {
	t.Parallel()
	w, _ := ledStateful(t, v2alpha1.Drain{})
	unit := w.ask(v2alpha1.TaskTypeLearner, 8, 2)
	w.settle()
	pods := w.current(unit)
	w.run(pods...)
	w.settle()
	expect.Equal(t, "active", "0-4", published(w.job).Active)
	w.remove(unit)
	expect.Equal(t, "leaving", "4", published(w.job).Leaving)
	for _, name := range pods {
		w.pod(name)
	}
	w.allAcknowledge()
	w.settle()
	for _, name := range pods {
		expect.Equal(t, name+" is deleted", true, w.pods[name] == nil)
	}
}
