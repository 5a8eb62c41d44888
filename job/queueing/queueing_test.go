// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package queueing_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestWhichQueueAJobNames(t *testing.T) {
	for name, tc := range map[string]struct {
		labels     map[string]string
		scheduling *v2alpha1.Scheduling
		want       queueing.PodMeta
	}{
		"a job that names none does not queue":         {},
		"a priority without a queue is none":           {labels: map[string]string{queueing.LabelPriorityClass: "high"}},
		"the job's label names it":                     {labels: map[string]string{queueing.LabelQueue: "team"}, want: queueing.PodMeta{Queue: "team"}},
		"the spec names it":                            {scheduling: &v2alpha1.Scheduling{Queue: "team"}, want: queueing.PodMeta{Queue: "team"}},
		"the spec's is Volcano's where that schedules": {scheduling: &v2alpha1.Scheduling{Queue: "team", SchedulerName: "volcano"}},
		"another scheduler has no queues":              {scheduling: &v2alpha1.Scheduling{Queue: "team", SchedulerName: "mine"}, want: queueing.PodMeta{Queue: "team"}},
		"the label is Kueue's whatever scheduler there is": {
			labels:     map[string]string{queueing.LabelQueue: "team", queueing.LabelPriorityClass: "high"},
			scheduling: &v2alpha1.Scheduling{Queue: "theirs", SchedulerName: "volcano"},
			want:       queueing.PodMeta{Queue: "team", PriorityClass: "high"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}, Spec: v2alpha1.DIJobSpec{Scheduling: tc.scheduling}}
			expect.Equal(t, "meta", tc.want, queueing.ForJob(job))
		})
	}
}

func TestAGroupHasANameOfItsOwnForEachStart(t *testing.T) {
	meta := queueing.PodMeta{Queue: "team"}
	of := func(name string, uid types.UID) *v2alpha1.DIJob {
		return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	start := queueing.StartOf
	first, again := of("job", "a"), of("job", "b")
	long := of(strings.Repeat("n", 45)+"."+strings.Repeat("-", 100), "a")
	seen := map[string]bool{}
	for _, group := range []queueing.PodMeta{
		meta.Grouped(start(first, 0, 0), 0, 4), meta.Grouped(start(first, 1, 0), 0, 4), meta.Grouped(start(first, 0, 1), 0, 4), meta.Grouped(start(first, 11, 0), 0, 4), meta.Grouped(start(first, 1, 10), 0, 4),
		meta.Grouped(start(again, 0, 0), 0, 4), meta.Grouped(start(long, 123456, 123456), 0, 4),
		meta.Grouped(start(first, 0, 0), 1, 4), meta.Grouped(start(first, 0, 1), 1, 4), meta.Grouped(start(first, 1, 0), 12, 4), meta.Grouped(start(long, 123456, 123456), math.MaxInt32, 4),
	} {
		if seen[group.Group] {
			t.Errorf("group %s is that of two starts", group.Group)
		}
		seen[group.Group] = true
		if errs := append(validation.IsDNS1123Subdomain(group.Group), validation.IsValidLabelValue(group.Group)...); len(errs) > 0 {
			t.Errorf("group %s: %v", group.Group, errs)
		}
		if group.Size != 4 || group.Queue != "team" {
			t.Errorf("meta are %+v", group)
		}
	}
	for _, added := range []int32{0, 1, 12, math.MaxInt32} {
		for _, job := range []*v2alpha1.DIJob{first, long} {
			if number, known := meta.Grouped(start(job, 3, 4), added, 2).Number(start(job, 3, 4)); !known || number != added {
				t.Errorf("group %d reads as %d, %v", added, number, known)
			}
		}
		if number, known := meta.Grouped(start(first, 3, 4), added, 2).Number(start(again, 3, 4)); known {
			t.Errorf("group %d of another job reads as %d", added, number)
		}
	}
	if alone := meta.Grouped(start(first, 0, 0), 0, 1); alone != meta {
		t.Errorf("a single pod gets %+v, want no group", alone)
	}
	if none := (queueing.PodMeta{}).Grouped(start(first, 0, 0), 0, 4); none != (queueing.PodMeta{}) {
		t.Errorf("a job without a queue gets %+v", none)
	}
}

func TestAPodBearsWhatKueueReads(t *testing.T) {
	template := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"mine": "kept", queueing.LabelQueue: "templates", queueing.LabelGroup: "templates"},
			Annotations: map[string]string{"mine": "kept", queueing.AnnotationGroupSize: "7", queueing.AnnotationRetriable: "true"},
		}}
	}
	for name, tc := range map[string]struct {
		meta                queueing.PodMeta
		pod                 *corev1.Pod
		labels, annotations map[string]string
	}{
		"in a group": {
			meta:   queueing.PodMeta{Queue: "team", PriorityClass: "high", Group: "job-1", Size: 4},
			pod:    &corev1.Pod{},
			labels: map[string]string{"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "high", "kueue.x-k8s.io/pod-group-name": "job-1"},
			annotations: map[string]string{
				"kueue.x-k8s.io/pod-group-total-count": "4", "kueue.x-k8s.io/retriable-in-group": "false",
			},
		},
		"by itself, what the template says of groups makes way": {
			meta:   queueing.PodMeta{Queue: "team"},
			pod:    template(),
			labels: map[string]string{"mine": "kept", "kueue.x-k8s.io/queue-name": "team"}, annotations: map[string]string{"mine": "kept"},
		},
		"without a queue, the template's own stay": {pod: template(), labels: template().Labels, annotations: template().Annotations},
	} {
		t.Run(name, func(t *testing.T) {
			tc.meta.Apply(tc.pod)
			expect.Equal(t, "labels", tc.labels, tc.pod.Labels)
			expect.Equal(t, "annotations", tc.annotations, tc.pod.Annotations)
			if tc.meta.Queue != "" && queueing.FromPod(tc.pod) != tc.meta {
				t.Errorf("the pod's meta read as %+v", queueing.FromPod(tc.pod))
			}
		})
	}
}

func TestWhatKueueDoesToAPodIsReadFromIt(t *testing.T) {
	type state struct{ Waiting, Forsaken, Evicted, Held bool }
	now := metav1.Now()
	taken := func(edit func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{queueing.LabelManaged: "true"}, Finalizers: []string{"another", queueing.Finalizer},
			},
			Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "another"}, {Name: queueing.Gate}}},
		}
		edit(pod)
		return pod
	}
	admitted := func(edit func(*corev1.Pod)) *corev1.Pod {
		pod := taken(edit)
		pod.Spec.SchedulingGates = nil
		return pod
	}
	target := []corev1.PodCondition{{Type: "TerminationTarget", Status: corev1.ConditionTrue, Message: "Preempted to accommodate a higher priority Workload"}}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want state
	}{
		"a pod that waits":                  {taken(func(*corev1.Pod) {}), state{Waiting: true}},
		"a pod that is admitted":            {admitted(func(*corev1.Pod) {}), state{}},
		"a pod behind another gate":         {&corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "another"}}}}, state{}},
		"a waiting pod that is deleted":     {taken(func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }), state{}},
		"a waiting pod that nobody manages": {taken(func(pod *corev1.Pod) { pod.Finalizers = nil }), state{Waiting: true, Forsaken: true}},
		"an evicted pod":                    {admitted(func(pod *corev1.Pod) { pod.Status.Conditions = target }), state{Evicted: true}},
		"the condition of a pod that is not Kueue's": {
			&corev1.Pod{Status: corev1.PodStatus{Conditions: target}}, state{},
		},
		"a pod that ends": {
			admitted(func(pod *corev1.Pod) {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, ptr.To[int64](30)
			}), state{},
		},
		"a pod that has gone but for the finalizer": {
			admitted(func(pod *corev1.Pod) {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, ptr.To[int64](0)
			}), state{Held: true},
		},
		"a pod that another finalizer holds": {
			admitted(func(pod *corev1.Pod) {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, ptr.To[int64](0)
				pod.Finalizers = []string{"another"}
			}), state{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			message, evicted := queueing.Eviction(tc.pod)
			got := state{queueing.IsWaiting(tc.pod), queueing.IsAbandoned(tc.pod), evicted, queueing.HasOnlyFinalizer(tc.pod)}
			expect.Equal(t, "state", tc.want, got)
			if evicted && message != target[0].Message {
				t.Errorf("message is %q", message)
			}
		})
	}
}

func TestReleasingAPodTakesKueuesFinalizerOnly(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"first", queueing.Finalizer, "last"}}}
	expect.Equal(t, "finalizers", []string{"first", "last"}, queueing.Release(pod).Finalizers)
	expect.Equal(t, fmt.Sprintf("the pod that was observed is changed: %v", pod.Finalizers), 3, len(pod.Finalizers))
}
