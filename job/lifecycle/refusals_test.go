// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestARefusedKindWaitsTwiceAsLongEachTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var refusal state.Refusal
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		refusal = refusal.After(0, true, now)
		if got := refusal.Until.Sub(now); got != want*time.Second || refusal.AtOnce != 1 {
			t.Errorf("waits %s and then tries %d, want %s and 1", got, refusal.AtOnce, want*time.Second)
		}
	}
	if refusal = refusal.After(3, true, now); refusal.Until.Sub(now) != state.FirstRefusalDelay {
		t.Errorf("waits %s after progress, want %s", refusal.Until.Sub(now), state.FirstRefusalDelay)
	}
}

func TestAKindThatIsNoLongerRefusedIsCreatedInLargerParts(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	refusal := state.Refusal{}.After(0, true, now)
	for _, want := range []int{1, 2, 4, 8, 16, 32, 0} {
		expect.MustEqual(t, "tries", want, refusal.AtOnce)
		refusal = refusal.After(refusal.AtOnce, false, now)
	}
	expect.Equal(t, "is reset", true, refusal == (state.Refusal{}))
	if refusal = (state.Refusal{}).After(0, true, now); refusal.After(0, false, now) != refusal {
		t.Error("a pass that tries nothing is remembered")
	}
}

func TestWhatWasRefusedIsLeftOutUntilItsTime(t *testing.T) {
	w := newWorld(t, v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeLearner, Template: template},
		{Type: v2alpha1.TaskTypeCollector, Replicas: new(int32(70)), Template: template},
	}})
	observed := w.observe()
	observed.Refused = map[string]state.Refusal{"collector": state.Refusal{}.After(0, true, observed.Now)}
	decision := Decide(observed)
	if len(decision.CreatePods) != 1 || !decision.HeldBack || decision.RequeueAfter != state.FirstRefusalDelay || decision.Lacking["collector"] != 70 {
		t.Errorf("creates %d pods, holds back %t for %s, lacks %v", len(decision.CreatePods), decision.HeldBack, decision.RequeueAfter, decision.Lacking)
	}
	observed.Now = observed.Now.Add(state.FirstRefusalDelay)
	if decision = Decide(observed); len(decision.CreatePods) != 2 || decision.HeldBack || !decision.More {
		t.Errorf("creates %d pods after the delay, holds back %t, more %t; want a learner and one collector first",
			len(decision.CreatePods), decision.HeldBack, decision.More)
	}
}

func TestACoordinatorWaitsForAListThatIsRefused(t *testing.T) {
	w := newWorld(t, ledJob())
	observed := w.observe()
	observed.Refused = map[string]state.Refusal{state.KindMembership: state.Refusal{}.After(0, true, observed.Now)}
	decision := Decide(observed)
	if decision.CreateMembership != nil || len(decision.CreatePods) != 0 || !decision.HeldBack {
		t.Errorf("creates the list %t and %d pods, holds back %t", decision.CreateMembership != nil, len(decision.CreatePods), decision.HeldBack)
	}
}
