// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pace"
)

var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// waitingJobs is an allocator of jobs that wait, with enough nodes for all.
type waitingJobs struct {
	*Reconciler
	store *indexed
}

func newWaitingJobs(t *testing.T, jobs int, clock clock.PassiveClock) *waitingJobs {
	t.Helper()
	store := newIndexed()
	allocator, err := New(store, store, Options{Registerer: prometheus.NewRegistry(), Recorder: &events.FakeRecorder{}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	add := func(to interface{ Add(any) error }, object client.Object) {
		object.SetUID(types.UID(object.GetName()))
		object.SetResourceVersion("1")
		if err := to.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs {
		add(store.nodes, benchNode(i))
		job := benchJob(i, clock.Now())
		job.Status = v2alpha1.DIJobStatus{}
		add(store.jobs, job)
	}
	return &waitingJobs{Reconciler: allocator, store: store}
}

func (w *waitingJobs) round(t *testing.T) time.Duration {
	t.Helper()
	result, err := w.Reconcile(t.Context(), ctrl.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func (w *waitingJobs) placed() (count int) {
	for _, object := range w.store.jobs.List() {
		if job, isJob := object.(*v2alpha1.DIJob); isJob && isPlaced(job) {
			count++
		}
	}
	return count
}

func TestPlacementsAreWrittenSeveralAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaitingJobs(t, 4*writers, clock.RealClock{})
		w.store.onPatch = func(client.Object) error { return pace.Pause(t.Context(), 100*time.Millisecond) }
		begun := time.Now()
		w.round(t)
		if took := time.Since(begun); took != 400*time.Millisecond || w.placed() != 4*writers {
			t.Errorf("%d jobs are placed after %s, want %d after 400ms", w.placed(), took, 4*writers)
		}
	})
}

func TestARoundThatWritesForLongLeavesTheRestToTheNext(t *testing.T) {
	t.Parallel()
	const jobs = 100
	clock := clocktesting.NewFakeClock(start)
	w := newWaitingJobs(t, jobs, clock)
	w.store.onPatch = func(client.Object) error {
		clock.Step(defaultWriting / 10)
		return nil
	}
	if after := w.round(t); after != defaultInterval || w.placed() < 10 || w.placed() > 11+writers {
		t.Errorf("%d jobs are placed in the first round, and the next one is after %s", w.placed(), after)
	}
	for range jobs / 10 {
		clock.Step(defaultInterval)
		w.round(t)
	}
	if w.placed() != jobs || w.store.writes.Load() != jobs {
		t.Errorf("%d jobs are placed by %d writes, want %d by as many", w.placed(), w.store.writes.Load(), jobs)
	}
}

func TestAJobThatHasChangedMeanwhileIsPlacedInTheNextRound(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(start)
	w := newWaitingJobs(t, 3, clock)
	w.store.onPatch = func(job client.Object) error {
		if job.GetName() == "job-0001" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "dijobs"}, job.GetName(), nil)
		}
		return nil
	}
	if after := w.round(t); after != defaultInterval || w.placed() != 2 {
		t.Errorf("%d jobs are placed, and the next round is after %s", w.placed(), after)
	}
	w.store.onPatch = nil
	clock.Step(defaultInterval)
	if after := w.round(t); after != DefaultCycle || w.placed() != 3 {
		t.Errorf("%d jobs are placed after another round, and the next one is after %s", w.placed(), after)
	}
}

// lossy is a client whose cache has no write of this process, and whose writes get no answer while isLost is set.
type lossy struct {
	*indexed
	stored *indexed
	isLost bool
}

func (l *lossy) Status() client.SubResourceWriter { return lossyWriter{statusWriter{l.stored}, l} }

type lossyWriter struct {
	statusWriter
	of *lossy
}

func (w lossyWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	found, exists, err := w.of.stored.jobs.Get(object)
	if err != nil {
		return err
	}
	if job, isJob := found.(*v2alpha1.DIJob); !exists || !isJob || job.ResourceVersion != object.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Resource: "dijobs"}, object.GetName(), nil)
	}
	if err := w.statusWriter.Patch(ctx, object, patch, options...); err != nil || !w.of.isLost {
		return err
	}
	return context.DeadlineExceeded
}

func TestCapacityIsNotPromisedTwiceAfterAWriteThatGotNoAnswer(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(start)
	w := newWaitingJobs(t, 0, clock)
	of := &lossy{indexed: w.store, stored: newIndexed(), isLost: true}
	w.client, w.live = of, of.stored
	add := func(number int, priority v2alpha1.Priority) {
		job := benchJob(number, clock.Now())
		job.UID, job.ResourceVersion, job.Spec.Priority, job.Status = types.UID(job.Name), "1", priority, v2alpha1.DIJobStatus{}
		expect.NoError(t, w.store.jobs.Add(job))
		expect.NoError(t, of.stored.jobs.Add(job.DeepCopy()))
	}
	node := benchNode(0)
	node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse(strconv.Itoa(benchReplicas))
	expect.NoError(t, w.store.nodes.Add(node))
	add(0, "")
	if _, err := w.Reconcile(t.Context(), ctrl.Request{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a write without an answer ends the round with %v", err)
	}
	of.isLost = false
	// Another job of the same zone comes. The cache does not have the placement of the first one.
	add(3, v2alpha1.PriorityHigh)
	for range 3 {
		clock.Step(defaultInterval)
		w.round(t)
		promised := 0
		for _, object := range of.stored.jobs.List() {
			if job, isJob := object.(*v2alpha1.DIJob); isJob {
				promised += len(job.Status.Allocation)
			}
		}
		if promised == 0 || promised > benchReplicas {
			t.Errorf("%d GPUs are promised, and there are %d", promised, benchReplicas)
		}
	}
}

// crowd is a policy that places all jobs on one node.
type crowd struct{ keep }

func (crowd) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	placements := make(map[types.NamespacedName]allocation.Placement, len(round.Jobs))
	for _, job := range round.Jobs {
		placements[job.Name] = allocation.Placement{Nodes: slices.Repeat([]string{nodeName(0)}, benchReplicas), Reason: v2alpha1.ReasonPlaced}
	}
	return placements
}

func TestAJobThatIsPlacedWhereThereIsNoCapacityWaits(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(start)
	w := newWaitingJobs(t, 3, clock)
	w.policy = crowd{}
	for range 3 {
		w.round(t)
		clock.Step(defaultInterval)
	}
	// The node has 8 GPUs, and each job needs 4.
	if w.placed() != 2 || w.store.writes.Load() != 3 {
		t.Errorf("%d jobs are placed by %d writes, want 2 by 3", w.placed(), w.store.writes.Load())
	}
}
