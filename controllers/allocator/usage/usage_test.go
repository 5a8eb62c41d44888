// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var start = time.Date(2026, 3, 1, 10, 0, 0, 123456000, time.UTC)

func TestTheStoredUsageIsTheUsage(t *testing.T) {
	t.Parallel()
	usage := allocation.Usage{
		At: start, Work: 1234.567, Useful: 9e9 + 0.125, Expected: 1e10, Attained: 4938.268, RunFor: 617.284, Restarts: 3,
		RestartCost: 31*time.Second + 7*time.Millisecond, Restarting: 12.25,
	}
	for i := range reflect.TypeFor[allocation.Usage]().NumField() {
		if reflect.ValueOf(usage).Field(i).IsZero() {
			t.Errorf("the test has no %s", reflect.TypeFor[allocation.Usage]().Field(i).Name)
		}
	}
	placement := &allocation.Placement{Nodes: []string{"a"}, Usage: usage}
	stored, err := json.Marshal(v2alpha1.DIJobStatus{AllocationUsage: After(&v2alpha1.DIJob{}, placement, Change{Policy: "mine"}, start)})
	expect.NoError(t, err)
	var status v2alpha1.DIJobStatus
	expect.NoError(t, json.Unmarshal(stored, &status))
	got := Of(&status)
	got.At = got.At.UTC()
	if got != usage {
		t.Errorf("the usage is %+v, want %+v; stored as %s", got, usage, stored)
	}
}

func TestNoNumberOfAPolicyBreaksTheStoredUsage(t *testing.T) {
	t.Parallel()
	for _, value := range []float64{math.NaN(), math.Inf(-1), -1} {
		if got := thousandths(value); got != 0 {
			t.Errorf("%g is stored as %d, want 0", value, got)
		}
	}
	for _, value := range []float64{math.Inf(1), 1e300} {
		if got := thousandths(value); got != maxStored {
			t.Errorf("%g is stored as %d, want the maximum", value, got)
		}
	}
}

func TestAJobWithoutUsageStoresNone(t *testing.T) {
	t.Parallel()
	if got := After(&v2alpha1.DIJob{}, &allocation.Placement{Reason: "InsufficientCapacity"}, Change{Policy: "mine"}, start); got != nil {
		t.Errorf("a waiting job stores %+v", got)
	}
}

func TestAPolicyWithoutAccountingKeepsTheUsageAndItsRestartsCount(t *testing.T) {
	t.Parallel()
	measured := allocation.Usage{At: start, Work: 5, Restarts: 1, RestartCost: time.Second}
	kept := Merge(&measured, &allocation.Usage{}, true)
	want := measured
	want.Restarts = 2
	if kept != want {
		t.Errorf("the usage is %+v, want %+v", kept, want)
	}
	decided := Merge(&measured, &allocation.Usage{At: start.Add(time.Minute), Work: 6, Restarts: 7, RestartCost: time.Hour}, true)
	want = allocation.Usage{At: start.Add(time.Minute), Work: 6, Restarts: 7, RestartCost: time.Second}
	if decided != want {
		t.Errorf("the usage is %+v, want %+v", decided, want)
	}
}

// restarting returns a job on node a whose placement changed at start, and the pod of its only rank.
func restarting(ready bool) (*v2alpha1.DIJob, []*corev1.Pod) {
	job := &v2alpha1.DIJob{Status: v2alpha1.DIJobStatus{
		Allocation: []string{"a"}, Reschedules: 1,
		// The digest is that of the allocation.
		Scaling: &v2alpha1.ScalingStatus{LastAllocation: "ca978112ca1bbdca"},
	}}
	at := metav1.NewMicroTime(start)
	job.Status.AllocationUsage = &v2alpha1.AllocationUsage{PlacedAt: &at, Restarting: true}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"diengine/reschedule": "1"}}}
	if ready {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(20 * time.Second)),
		}}
	}
	return job, []*corev1.Pod{pod}
}

func TestARestartEndsWhenTheReplicasAreReadyOrTheJobReports(t *testing.T) {
	t.Parallel()
	type testCase struct {
		ready      bool
		change     func(*v2alpha1.DIJob, []*corev1.Pod) []*corev1.Pod
		reportedAt time.Time
		now        time.Duration
		want       Restart
		isOver     bool
	}
	same := func(_ *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod { return pods }
	tests := map[string]testCase{
		"ready replicas": {ready: true, change: same, now: time.Minute, want: Restart{start.Add(20 * time.Second), true}, isOver: true},
		"a report":       {change: same, reportedAt: start.Add(30 * time.Second), now: time.Minute, want: Restart{start.Add(30 * time.Second), true}, isOver: true},
		"neither":        {change: same, now: time.Minute, want: Restart{End: start.Add(time.Minute)}},
		"neither for long": {
			change: same, now: 2 * time.Hour, want: Restart{End: start.Add(2 * time.Hour)}, isOver: true,
		},
		"a report while a pod of the former placement exists": {
			change:     func(_ *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod { return append(pods, &corev1.Pod{}) },
			reportedAt: start.Add(time.Second), now: time.Minute, want: Restart{End: start.Add(time.Minute)},
		},
		"ready replicas of the former placement": {
			ready: true,
			change: func(job *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod {
				job.Status.Scaling.LastAllocation = "another"
				return pods
			},
			now: time.Minute, want: Restart{End: start.Add(time.Minute)},
		},
		"a job that is not restarting": {
			ready: true,
			change: func(job *v2alpha1.DIJob, pods []*corev1.Pod) []*corev1.Pod {
				job.Status.AllocationUsage.Restarting = false
				return pods
			},
			now: time.Minute,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, pods := restarting(tc.ready)
			pods = tc.change(job, pods)
			got, isOver := EndOfRestart(job, pods, tc.reportedAt, start.Add(tc.now))
			if got != tc.want || isOver != tc.isOver {
				t.Errorf("the end is %+v, over %v; want %+v, %v", got, isOver, tc.want, tc.isOver)
			}
		})
	}
}

func TestALiveResizeIsNoRestart(t *testing.T) {
	t.Parallel()
	grown, later := &allocation.Placement{Nodes: []string{"a", "b"}}, start.Add(time.Minute)
	job, _ := restarting(true)
	placedAt := job.Status.AllocationUsage.PlacedAt
	if got := After(job, grown, Change{Policy: "mine"}, later); !got.Restarting || !got.PlacedAt.Equal(placedAt) {
		t.Errorf("a restart that lasts: %+v, want the same restart", got)
	}
	if got := After(job, grown, Change{Policy: "mine", IsMeasured: true}, later); got.Restarting || !got.PlacedAt.Time.Equal(later) {
		t.Errorf("after a restart: %+v, want no restart", got)
	}
	if got := After(job, grown, Change{Policy: "mine", Restarts: true}, later); !got.Restarting || !got.PlacedAt.Time.Equal(later) {
		t.Errorf("another placement: %+v, want a new restart", got)
	}
}

func TestTheCostOfRestartsIsAnExponentialAverage(t *testing.T) {
	t.Parallel()
	got := averageRestart(0, 20*time.Second)
	if got != 20*time.Second {
		t.Errorf("the first restart costs %s", got)
	}
	if got = averageRestart(got, 30*time.Second); got != 23*time.Second {
		t.Errorf("the average is %s, want 23s", got)
	}
	if got = averageRestart(0, 100*time.Hour); got != maxRestart {
		t.Errorf("the average is %s, want at most %s", got, maxRestart)
	}
	if got = averageRestart(0, -time.Second); got != 0 {
		t.Errorf("the average of a clock behind is %s", got)
	}
}

func TestAJobDoesNotTrainUntilItsRestartHasEnded(t *testing.T) {
	t.Parallel()
	job, _ := restarting(false)
	usage := allocation.Usage{At: start, Restarting: 5}
	Adjust(&usage, job.Status.AllocationUsage, nil, start.Add(time.Minute))
	if usage.Restarting != 60 {
		t.Errorf("a restart that lasts takes %g s of the minute, want 60", usage.Restarting)
	}
	usage = allocation.Usage{At: start, Restarting: 50}
	Adjust(&usage, job.Status.AllocationUsage, &Restart{End: start.Add(20 * time.Second), IsMeasured: true}, start.Add(time.Minute))
	if usage.Restarting != 20 || usage.RestartCost != 20*time.Second {
		t.Errorf("a restart of 20 s takes %g s and costs %s", usage.Restarting, usage.RestartCost)
	}
}

func TestJobsAreRefreshedInTheOrderOfTheirLastWrites(t *testing.T) {
	t.Parallel()
	job := func(name string, at time.Time) *v2alpha1.DIJob {
		accounted := metav1.NewMicroTime(at)
		return &v2alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v2alpha1.DIJobStatus{AllocationUsage: &v2alpha1.AllocationUsage{AccountedAt: &accounted}},
		}
	}
	var order []string
	for _, each := range ByWriting([]*v2alpha1.DIJob{job("c", start), job("a", start.Add(time.Second)), job("b", start)}) {
		order = append(order, each.Name)
	}
	if want := []string{"b", "c", "a"}; !reflect.DeepEqual(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}

func TestUsageAloneIsStoredOftenEnoughThatAnEndIsKnownWithinAFactorOfTwo(t *testing.T) {
	t.Parallel()
	placement := &allocation.Placement{Nodes: []string{"a"}, Reason: "Placed", Message: "1 replica on 1 node"}
	job := func(trained time.Duration) *v2alpha1.DIJob {
		return &v2alpha1.DIJob{Status: v2alpha1.DIJobStatus{
			AllocationUsage: &v2alpha1.AllocationUsage{TrainedMilliseconds: trained.Milliseconds()},
			Conditions: []v2alpha1.DIJobCondition{{
				Type: v2alpha1.ConditionAllocated, Reason: placement.Reason, Message: placement.Message,
			}},
		}}
	}
	for trained, want := range map[time.Duration]time.Duration{
		0: time.Minute, time.Second: time.Minute, 3 * time.Minute: 3 * time.Minute, time.Hour: 10 * time.Minute, 1 << 62: 10 * time.Minute,
	} {
		if got := RefreshAfter(job(trained), placement, false); got != want {
			t.Errorf("the usage of a job that has trained for %s is stored after %s, want %s", trained, got, want)
		}
	}
	other := *placement
	other.Message = "1 replica on 1 node; more would gain"
	if got := []time.Duration{RefreshAfter(job(time.Hour), &other, false), RefreshAfter(job(time.Hour), placement, true)}; fmt.Sprint(got) != "[1m0s 1m0s]" {
		t.Errorf("a new message is stored after %s, a measured restart after %s; want a minute", got[0], got[1])
	}
}
