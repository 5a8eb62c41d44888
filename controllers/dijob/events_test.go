// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestThePodsOfOneReconcileShareAnEventForTheSameResult(t *testing.T) {
	t.Parallel()
	pods := []string{"job-collector-0", "job-collector-1"}
	tests := map[string]struct {
		effect effect
		one    string
		two    string
	}{
		"created": {
			effect{reason: v2alpha1.ReasonSuccessfulCreate},
			"Normal SuccessfulCreate created pod job-collector-0", "Normal SuccessfulCreate created 2 pods: job-collector-0, job-collector-1",
		},
		"deleted": {
			effect{reason: v2alpha1.ReasonSuccessfulDelete},
			"Normal SuccessfulDelete deleted pod job-collector-0", "Normal SuccessfulDelete deleted 2 pods: job-collector-0, job-collector-1",
		},
		"not created": {effect{reason: v2alpha1.ReasonFailedCreate, err: errors.New("no")}, "Warning FailedCreate no", "Warning FailedCreate 2 pods: no"},
		"not deleted": {effect{reason: v2alpha1.ReasonFailedDelete, err: errors.New("no")}, "Warning FailedDelete no", "Warning FailedDelete 2 pods: no"},
		"to wait for": {effect{reason: v2alpha1.ReasonFailedCreate, err: leavingError{}}, "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := events.NewFakeRecorder(100)
			r := &Reconciler{recorder: recorder, clock: clock.RealClock{}}
			var done effects
			for _, pod := range pods {
				one := tc.effect
				one.object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod, UID: types.UID(pod)}}
				done = append(done, one)
			}
			for count, want := range map[int]string{1: tc.one, 2: tc.two} {
				r.states = jobStates{}
				r.recordWrites(&v2alpha1.DIJob{}, done[:count])
				if got := strings.Join(eventsOf(recorder), "\n"); got != want {
					t.Errorf("the event of %d is %q, want %q", count, got, want)
				}
			}
		})
	}
}

func TestAPodThatACacheStillShowsIsNotReportedAsDeletedTwice(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{recorder: recorder, clock: clock.RealClock{}}
	var done effects
	for _, name := range []string{"job-collector-0", "job-collector-1", "job-learner-0"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		done = append(done, effect{object: pod, reason: v2alpha1.ReasonSuccessfulDelete})
	}
	r.recordWrites(&v2alpha1.DIJob{}, done[:2])
	r.recordWrites(&v2alpha1.DIJob{}, done)
	r.recordWrites(&v2alpha1.DIJob{}, done)
	// A pod of the same name is another pod.
	done[0].object.SetUID("another")
	r.recordWrites(&v2alpha1.DIJob{}, done)
	want := []string{
		"Normal SuccessfulDelete deleted 2 pods: job-collector-0, job-collector-1",
		"Normal SuccessfulDelete deleted pod job-learner-0", "Normal SuccessfulDelete deleted pod job-collector-0",
	}
	if got := eventsOf(recorder); !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
}

func TestPodsResizedToDifferentSizesHaveDifferentEvents(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(100)
	r := &Reconciler{recorder: recorder, clock: clock.RealClock{}}
	var done effects
	for i, size := range []string{"memory 2Gi", "memory 4Gi", "memory 2Gi"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-collector-%d", i)}}
		done = append(done, effect{object: pod, reason: v2alpha1.ReasonPodResized, note: size})
	}
	r.recordWrites(&v2alpha1.DIJob{}, done)
	want := []string{
		"Normal PodResized resized in place to memory 2Gi: 2 pods: job-collector-0, job-collector-2",
		"Normal PodResized resized in place to memory 4Gi: pod job-collector-1",
	}
	if got := eventsOf(recorder); !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
}
