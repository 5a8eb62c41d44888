// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestWhatAnEarlierJobLeftBehindIsDeletedAfterTheGarbageCollectorHadItsTime(t *testing.T) {
	left := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "diengine.opendilab.org/v2alpha1", Kind: "DIJob", Name: "job", UID: "earlier", Controller: ptr.To(true)},
		}}}
		if change != nil {
			change(pod)
		}
		return pod
	}
	alsoOf := func(owner types.UID) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "other", UID: owner})
		}
	}
	leaving := func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: start()} }
	for name, tc := range map[string]struct {
		left  []*corev1.Pod
		since time.Duration
		clock time.Duration
		// isAnew is whether the operator restarts after it saw the objects.
		isAnew bool
		want   []string
		next   time.Duration
	}{
		"nothing is left":                     {since: time.Hour},
		"it is seen for the first time":       {left: []*corev1.Pod{left("a", nil)}, next: 10 * time.Second},
		"it is seen for some seconds":         {left: []*corev1.Pod{left("a", nil)}, since: 4 * time.Second, next: 6 * time.Second},
		"it stays":                            {left: []*corev1.Pod{left("a", nil), left("b", nil)}, since: 10 * time.Second, want: []string{"a", "b"}, next: 10 * time.Second},
		"the operator has restarted":          {left: []*corev1.Pod{left("a", nil)}, since: time.Hour, isAnew: true, next: 10 * time.Second},
		"the operator's clock is set back":    {left: []*corev1.Pod{left("a", nil)}, since: time.Hour, clock: -2 * time.Hour, next: 10 * time.Second},
		"it is being deleted":                 {left: []*corev1.Pod{left("a", leaving)}, since: time.Hour},
		"it has an owner of another kind too": {left: []*corev1.Pod{left("a", alsoOf("stranger"))}, since: time.Hour},
		"its aggregator is left too":          {left: []*corev1.Pod{left("a", alsoOf("b")), left("b", nil)}, since: time.Hour, want: []string{"a", "b"}, next: 10 * time.Second},
		"its aggregator is being deleted":     {left: []*corev1.Pod{left("a", alsoOf("b")), left("b", leaving)}, since: time.Hour, want: []string{"a"}, next: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			observed := newWorld(t, manyWorkers(2)).observe()
			for _, pod := range tc.left {
				observed.LeftBehind = append(observed.LeftBehind, pod)
			}
			observed.Now = start()
			var sightings state.Sightings
			sightings.See(&observed)
			if tc.isAnew {
				sightings = state.Sightings{}
			}
			observed.Now = start().Add(tc.since + tc.clock)
			sightings.See(&observed)
			found := upkeep.FindLeftBehind(&observed)
			var due []string
			for _, object := range found.Due {
				due = append(due, object.GetName())
			}
			expect.Equal(t, "deleted", true, slices.Equal(tc.want, due))
			expect.Equal(t, "it looks again after", tc.next, found.Next)
		})
	}
}
