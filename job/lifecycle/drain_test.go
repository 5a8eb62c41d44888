// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// statefulJob returns a job of four parameter servers and two workers.
func statefulJob() v2alpha1.DIJobSpec {
	return v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeNone, Name: "worker", Replicas: ptr.To(int32(2)), Template: template},
		{Type: v2alpha1.TaskTypeNone, Name: "ps", Replicas: ptr.To(int32(4)), Template: template, Drain: &v2alpha1.Drain{}},
	}}
}

// resizeServers changes the number of parameter servers and reconciles.
func (w *world) resizeServers(count int32) {
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(count) })
	w.settle()
}

func TestAShrinkWaitsUntilEveryMemberAcknowledges(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	expect.Equal(t, "active", "0-5", published(w.job).Active)
	w.resizeServers(2)
	list := published(w.job)
	expect.Equal(t, "leaving", "4-5", list.Leaving)
	expect.Equal(t, "version to acknowledge", list.Version, list.Acknowledge)
	expect.Equal(t, "draining", true, conditions.IsTrue(&w.job.Status, v2alpha1.ConditionDraining))
	w.acknowledge("job-worker-0", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	w.settle()
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	w.acknowledge("job-worker-1")
	w.settle()
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1")
	expect.Equal(t, "active", "0-3", published(w.job).Active)
	expect.Equal(t, "leaving", "", published(w.job).Leaving)
	expect.Equal(t, "drained", true, slices.Contains(w.events, v2alpha1.ReasonDrained))
	expect.Equal(t, "draining", false, conditions.IsTrue(&w.job.Status, v2alpha1.ConditionDraining))
	w.expectPhase(v2alpha1.JobRunning)
}

func TestNewServersJoinTogetherOnceAllAreReady(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	w.resizeServers(6)
	before := published(w.job).Version
	w.run("job-ps-4")
	w.settle()
	expect.Equal(t, "version", before, published(w.job).Version)
	w.run("job-ps-5")
	w.settle()
	expect.Equal(t, "version", before+1, published(w.job).Version)
	expect.Equal(t, "active", "0-7", published(w.job).Active)
	// One that never joined holds no state.
	w.resizeServers(7)
	w.resizeServers(6)
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3", "job-ps-4", "job-ps-5")
}

func TestARemovalThatIsNotAcknowledgedFailsAndIsRetriedForAnotherChange(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	w.resizeServers(3)
	w.acknowledge("job-worker-0", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	w.now = w.now.Add(10 * time.Minute)
	w.settle()
	failed := conditions.Find(&w.job.Status, v2alpha1.ConditionDrainFailed)
	if failed == nil || !strings.Contains(failed.Message, "job-ps-3") || !strings.Contains(failed.Message, "job-worker-1 did not acknowledge") {
		t.Fatalf("condition %+v", failed)
	}
	expect.Equal(t, "kept", "5", published(w.job).Kept)
	expect.Equal(t, "leaving", "", published(w.job).Leaving)
	if w.pods["job-ps-3"] == nil {
		t.Fatal("the replica is removed although its state was not handed over")
	}
	w.resizeServers(2)
	expect.Equal(t, "leaving", "4-5", published(w.job).Leaving)
	expect.Equal(t, "failed", false, conditions.IsTrue(&w.job.Status, v2alpha1.ConditionDrainFailed))
	w.allAcknowledge()
	w.settle()
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1")
}

func TestATimeoutRemovesWhereTheTaskSaysSo(t *testing.T) {
	t.Parallel()
	spec := statefulJob()
	spec.Tasks[1].Drain = &v2alpha1.Drain{TimeoutSeconds: ptr.To(int32(60)), OnTimeout: v2alpha1.DrainRemove}
	w := allRunning(t, spec)
	w.resizeServers(3)
	if w.pods["job-ps-3"] == nil {
		t.Fatal("the replica is removed before its timeout")
	}
	if after := Decide(w.observe()).RequeueAfter; after <= 0 || after > time.Minute {
		t.Fatalf("the job is reconciled after %s", after)
	}
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2")
	expect.Equal(t, "timed out", true, slices.Contains(w.events, v2alpha1.ReasonDrainTimedOut))
}

func TestARefusalFailsTheRemovalAtOnce(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	w.resizeServers(3)
	w.refuse("job-ps-0", "no memory for the shards")
	w.settle()
	failed := conditions.Find(&w.job.Status, v2alpha1.ConditionDrainFailed)
	if failed == nil || !strings.Contains(failed.Message, "job-ps-0 refuses version") || !strings.Contains(failed.Message, "no memory for the shards") {
		t.Fatalf("condition %+v", failed)
	}
	w.resizeServers(4)
	expect.Equal(t, "failed", false, conditions.IsTrue(&w.job.Status, v2alpha1.ConditionDrainFailed))
	expect.Equal(t, "kept", "", published(w.job).Kept)
}

func TestAMemberThatJoinsMeanwhileAcknowledgesToo(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	w.resizeServers(3)
	w.acknowledge("job-worker-0", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	first := published(w.job).Acknowledge
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To(int32(3)) })
	w.settle()
	w.run("job-worker-2")
	w.settle()
	if again := published(w.job).Acknowledge; again <= first {
		t.Fatalf("version %d must be acknowledged, as before", again)
	}
	w.acknowledge("job-worker-1")
	w.settle()
	if w.pods["job-ps-3"] == nil {
		t.Fatal("the replica is removed before the members acknowledged the last round")
	}
	w.allAcknowledge()
	w.settle()
	if w.pods["job-ps-3"] != nil {
		t.Fatal("the replica stays although all members acknowledged")
	}
}

func TestAServerThatFailsBeforeItHandedOverItsStateIsAFailure(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	w.resizeServers(3)
	w.end("job-ps-3", 1)
	w.settle()
	expect.Equal(t, "restarts", int32(1), w.job.Status.Restarts)
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2")
}

func TestAServerThatExitsAfterItHandedOverItsStateIsNoFailure(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	w.resizeServers(3)
	w.allAcknowledge()
	w.end("job-ps-3", 1)
	w.settle()
	expect.Equal(t, "restarts", int32(0), w.job.Status.Restarts)
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2")
}

func TestClocksThatDifferDoNotEndAHandshake(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, -5 * time.Second, 5 * time.Second, time.Hour} {
		w := newWorld(t, statefulJob())
		w.clocks.api = ahead
		w.allRun()
		expect.Equal(t, "active", "0-5", published(w.job).Active)
		w.now = w.now.Add(24 * time.Hour)
		w.resizeServers(2)
		expect.Equal(t, "leaving", "4-5", published(w.job).Leaving)
		w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2", "job-ps-3")
	}
}

func TestAnotherOperatorWaitsTheWholeTimeForAcknowledgements(t *testing.T) {
	t.Parallel()
	spec := statefulJob()
	spec.Tasks[1].Drain = &v2alpha1.Drain{TimeoutSeconds: ptr.To(int32(60)), OnTimeout: v2alpha1.DrainRemove}
	w := allRunning(t, spec)
	w.resizeServers(3)
	w.sightings, w.ahead = state.Sightings{}, time.Hour
	w.settle()
	if w.pods["job-ps-3"] == nil {
		t.Fatal("the replica is removed before its timeout")
	}
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.expectPods("job-worker-0", "job-worker-1", "job-ps-0", "job-ps-1", "job-ps-2")
}

func TestALaterPodOfARankIsAnotherMember(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	before := published(w.job).Version
	// The operator sees neither that it goes nor that it is not ready.
	later := w.pod("job-ps-3").DeepCopy()
	later.UID = "later"
	w.pods["job-ps-3"] = later
	w.now = w.now.Add(time.Minute)
	w.settle()
	if list := published(w.job); list.Version == before || list.Active != "0-5" {
		t.Errorf("the later pod is in no version: %+v", list)
	}
}

func TestTheMembershipOfAnEarlierOperatorListsItsRanks(t *testing.T) {
	t.Parallel()
	w := allRunning(t, statefulJob())
	before := *published(w.job)
	w.change(func(job *v2alpha1.DIJob) { published(job).Pods, published(job).PodsVersion = "", 0 })
	w.settle()
	expect.Equal(t, "the membership", before, *published(w.job))
	w.change(func(job *v2alpha1.DIJob) {
		// An earlier operator keeps what it does not know, of a version that is gone.
		list := published(job)
		list.Version, list.Pods = list.Version+1, strings.Repeat("-", len(list.Pods))
		list.Leaving, list.Acknowledge, list.LeavingSince = "5", list.Version, list.PublishedAt
		job.Spec.Tasks[1].Replicas = ptr.To(int32(3))
	})
	w.listed[before.Version+1] = w.listed[before.Version]
	w.settle()
	if list := published(w.job); list.Leaving != "5" || w.pods["job-ps-3"] == nil {
		t.Errorf("the replica is released: %+v", list)
	}
}

// TestStateIsNeverLostByIntent resizes a stateful job at random while its operator, its cache and
// its members lag. checkRelease must hold at every step, and no handshake may hang.
func TestStateIsNeverLostByIntent(t *testing.T) {
	t.Parallel()
	drained := 0
	for seed := range uint64(80) {
		judge := &player{}
		spec := statefulJob()
		spec.BackoffLimit = ptr.To(int32(-1))
		switch seed % 3 {
		case 0:
			spec.Tasks[1].Drain = &v2alpha1.Drain{TimeoutSeconds: ptr.To(int32(40)), OnTimeout: v2alpha1.DrainRemove}
		case 1:
			spec.Tasks[1].Drain = &v2alpha1.Drain{TimeoutSeconds: ptr.To(int32(40))}
		}
		w := newWorld(judge, spec)
		w.isTraced, w.clocks = true, anyClocks(rand.New(rand.NewPCG(seed, 0)))
		over := make(chan struct{})
		go func() {
			defer close(over)
			w.lag()
			for step := range uint64(250) {
				w.befallServers(rand.New(rand.NewPCG(seed, step)))
			}
			w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(int32(1)) })
			for range 5 {
				w.now = w.now.Add(time.Minute)
				for _, name := range w.podNames() {
					w.toRun(name)
				}
				w.rest()
			}
		}()
		<-over
		if judge.failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed, judge.failure, strings.Join(w.trace[max(0, len(w.trace)-40):], "\n"))
		}
		for _, event := range w.events {
			if event == v2alpha1.ReasonDrained {
				drained++
			}
		}
	}
	if drained < 50 {
		t.Errorf("only %d handshakes were completed", drained)
	}
}

// befallServers applies one random event to a stateful job.
func (w *world) befallServers(random *rand.Rand) {
	w.now = w.now.Add(time.Duration(random.IntN(1000)) * time.Millisecond)
	switch choice := random.IntN(100); {
	case choice < 35:
		w.step()
	case choice < 60:
		w.hear(random)
	case choice < 61:
		w.now = w.now.Add(30 * time.Second)
	case choice < 63 && w.standby != nil:
		w.changeLeader()
	case choice < 63:
		w.resync()
	default:
		w.befallMembers(random)
	}
}

// befallMembers applies one random event to a stateful job that is not its operator's.
func (w *world) befallMembers(random *rand.Rand) {
	switch choice := random.IntN(37); {
	case choice < 15:
		w.anyMemberReads(random)
	case choice < 28:
		for _, name := range w.podNames() {
			w.toRun(name)
		}
		w.reap()
	case choice < 33:
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(1 + random.Int32N(5)) })
		w.tell("%d servers are desired", *w.job.Spec.Tasks[1].Replicas)
	case choice < 35:
		w.change(func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To(1 + random.Int32N(3)) })
		w.tell("%d workers are desired", *w.job.Spec.Tasks[0].Replicas)
	default:
		w.befallPod(random)
	}
}
