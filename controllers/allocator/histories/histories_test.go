// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package histories

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// fullGroup returns a group with as many observations as it may have.
func fullGroup() *allocation.Group {
	group := &allocation.Group{
		Noise: &model.Noise{Sqr: 0.1, Var: 1.0 / 3}, MaxObserved: 64, Finished: 3, Useful: 1e9 / 7,
		Bounds: &model.Bounds{Initial: 32, Max: 4096, MinAtomic: 16, MaxAtomic: 128, NoAccumulation: true},
		Totals: allocation.Totals{Finished: 2, Wrong: 0.1}, Since: start,
	}
	for i := range allocation.MaxObservations {
		group.Observations = append(group.Observations, model.Observation{
			Nodes: 1 + i/8, Replicas: 1 + i, Atomic: 128, Span: i % 3, Step: 1 / (3 + float64(i)), Accumulate: 1 / (7 + float64(i)),
		})
	}
	return group
}

func TestTheStoredGroupsAreTheGroups(t *testing.T) {
	t.Parallel()
	h := New()
	h.Groups["x/ppo"], h.usedAt["x/ppo"] = fullGroup(), start
	h.Groups["x#0123"], h.usedAt["x#0123"] = &allocation.Group{}, start
	h.counted["uid-1"], h.counted["uid-2"] = true, true
	got, unreadable := Decode(h.Encode())
	if len(unreadable) > 0 || !reflect.DeepEqual(got.Groups, h.Groups) || !reflect.DeepEqual(got.counted, h.counted) {
		t.Errorf("stored and read are %+v, want %+v; unreadable %v", got, h, unreadable)
	}
	if want := start.Truncate(time.Hour); !got.usedAt["x/ppo"].Equal(want) {
		t.Errorf("the use is stored as %s, want %s", got.usedAt["x/ppo"], want)
	}
}

func TestTheStoredGroupsAreBoundedAndThoseUsedLastAreKept(t *testing.T) {
	t.Parallel()
	h := New()
	for i := range 3 * maxGroups {
		name := fmt.Sprintf("namespace/group-%04d", i)
		h.Groups[name], h.usedAt[name] = fullGroup(), start.Add(time.Duration(i)*time.Minute)
	}
	data, size := h.Encode(), 0
	for key, text := range data {
		size += len(key) + len(text)
	}
	if len(data) > maxGroups || size > 600<<10 || len(data) < maxGroups/2 {
		t.Errorf("%d groups of %d bytes are stored", len(data), size)
	}
	if len(h.Groups) != len(data) || h.Groups[fmt.Sprintf("namespace/group-%04d", 3*maxGroups-1)] == nil || h.Groups["namespace/group-0000"] != nil {
		t.Errorf("the %d groups that are kept are not the %d that are stored", len(h.Groups), len(data))
	}
}

func TestUnreadableGroupsAreIgnored(t *testing.T) {
	t.Parallel()
	h := New()
	h.Groups["x/good"], h.Groups["x/bad"] = fullGroup(), &allocation.Group{Useful: math.NaN()}
	data := h.Encode()
	if len(data) != 1 {
		t.Errorf("a group without numbers is stored: %v", data)
	}
	for key, text := range map[string]string{
		groupKey("a"): `{`,
		groupKey("b"): `{"name":"c"}`,
		groupKey("d"): `{"name":"d","observations":[[0,1,1,1,1]]}`,
		groupKey("e"): `{"name":"e","observations":[[1,1,1,-1,1]]}`,
		groupKey("f"): `{"name":"f","finished":-1}`,
		groupKey("g"): `{"name":"g","totals":1,"totalsWrong":-1}`,
		groupKey("h"): `{"name":"h","observations":[[2,2,1,1,1]],"spans":[6]}`,
		groupKey("i"): `{"name":"i","observations":[[2,2,1,1,1]],"spans":[1,1]}`,
		"of a person": `hello`,
	} {
		data[key] = text
	}
	got, unreadable := Decode(data)
	if len(unreadable) != 9 || len(got.Groups) != 1 || got.Groups["x/good"] == nil {
		t.Errorf("%d keys are unreadable (%v), and %d groups are read", len(unreadable), unreadable, len(got.Groups))
	}
}

func succeededJob() *v2alpha1.DIJob {
	accounted, completed := metav1.NewMicroTime(start), metav1.NewTime(start.Add(30*time.Second).Truncate(time.Second))
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID("one")},
		Spec:       v2alpha1.DIJobSpec{Preemptible: true},
		Status: v2alpha1.DIJobStatus{
			Phase: v2alpha1.JobSucceeded, Allocation: []string{"a"}, CompletionTimestamp: &completed,
			AllocationUsage: &v2alpha1.AllocationUsage{AccountedAt: &accounted, UsefulThousandths: 100_000, TrainedMilliseconds: 100_000},
		},
	}
}

func TestAGroupLearnsTheSizeOfAJobOnce(t *testing.T) {
	t.Parallel()
	h, job := New(), succeededJob()
	if !IsUncounted(job) || !h.Count(job, "g") {
		t.Fatal("a job that has succeeded does not count")
	}
	read, _ := Decode(h.Encode())
	if read.Count(job, "g") {
		t.Error("a new leader counts it again")
	}
	if got := read.Groups["g"]; got.Finished != 1 || math.Abs(got.Useful-130) > 1 {
		t.Errorf("the group has %d jobs of %g samples, want 1 of 130", got.Finished, got.Useful)
	}
	job.Status.AllocationUsage.Counted = true
	if IsUncounted(job) {
		t.Error("a job that is marked counts again")
	}
}

func TestTotalsOfAGroupCountMoreTheMoreOfItsJobsHaveFinished(t *testing.T) {
	t.Parallel()
	h := New()
	finish := func(namespace, group string, expected int64) {
		job := succeededJob()
		job.UID, job.Namespace = types.UID(strconv.Itoa(len(h.counted))), namespace
		job.Status.AllocationUsage.ExpectedThousandths = expected
		h.Count(job, group)
	}
	for range 10 {
		finish("x", "x/liars", 390_000)
	}
	other := h.Totals("x/new", "x").Wrong
	if liars := h.Totals("x/liars", "x").Wrong; other < 0.7 || math.Abs(liars-other) > 1e-9 {
		t.Errorf("totals are wrong by %g among jobs that were wrong by a factor of 3, by %g in a new group; want the same", liars, other)
	}
	for range 20 {
		finish("x", "x/honest", 130_000)
	}
	if honest, new := h.Totals("x/honest", "x").Wrong, h.Totals("x/new", "x").Wrong; honest >= new || new >= other {
		t.Errorf("totals are wrong by %g in the honest group, %g in a new one, and %g before", honest, new, other)
	}
	if got := h.Totals("y/new", "y"); got != (allocation.Totals{}) {
		t.Errorf("another namespace has %+v, want nothing", got)
	}
	finish("x", "x/silent", 0)
	if got := h.Groups["x/silent"].Totals; got.Finished != 0 {
		t.Errorf("a job without a total counts: %+v", got)
	}
}

func TestOnlyPreemptibleJobsOfKnownSizeThatHaveSucceededCount(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*v2alpha1.DIJob){
		"has failed":         func(job *v2alpha1.DIJob) { job.Status.Phase = v2alpha1.JobFailed },
		"is not preemptible": func(job *v2alpha1.DIJob) { job.Spec.Preemptible = false },
		"reported nothing":   func(job *v2alpha1.DIJob) { job.Status.AllocationUsage.UsefulThousandths = 0 },
		"has no usage":       func(job *v2alpha1.DIJob) { job.Status.AllocationUsage = nil },
	} {
		job := succeededJob()
		change(job)
		if IsUncounted(job) {
			t.Errorf("a job that %s counts", what)
		}
	}
}
