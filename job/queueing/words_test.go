// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package queueing_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheWordsOfAWorkloadAreThoseAboutItsQuota(t *testing.T) {
	workload := func(conditions any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
	}
	const words = "insufficient unused quota for cpu in flavor any, 20m more needed"
	quota := map[string]any{"type": "QuotaReserved", "status": "False", "message": words}
	for name, tc := range map[string]struct {
		conditions any
		want       string
	}{
		"a new one says nothing":               {},
		"one that waits":                       {conditions: []any{map[string]any{"type": "Evicted", "message": "Preempted"}, quota}, want: words},
		"what is no list":                      {conditions: "QuotaReserved"},
		"what is no condition, and no message": {conditions: []any{"QuotaReserved", map[string]any{"type": "QuotaReserved", "message": int64(1)}}},
		"a long message is cut":                {conditions: []any{map[string]any{"type": "QuotaReserved", "message": strings.Repeat("n", 10_000)}}, want: strings.Repeat("n", 509) + "..."},
		"a message is not cut within a letter": {conditions: []any{map[string]any{"type": "QuotaReserved", "message": "n" + strings.Repeat("ü", 300)}}, want: "n" + strings.Repeat("ü", 254) + "..."},
		"space around a message is no part":    {conditions: []any{map[string]any{"type": "QuotaReserved", "message": " " + words + "\n"}}, want: words},
	} {
		t.Run(name, func(t *testing.T) {
			got := queueing.Words(workload(tc.conditions))
			expect.Equal(t, "words", tc.want, got)
			expect.Equal(t, "valid", true, utf8.ValidString(got))
		})
	}
}

func TestOnlyPodsThatKueueGatesWait(t *testing.T) {
	gated := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: queueing.Gate}}}}
	}
	managed := map[string]string{queueing.LabelManaged: "true"}
	waiting, gone := gated(managed), gated(managed)
	gone.DeletionTimestamp = ptr.To(metav1.Now())
	others := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Labels: managed}}, gated(nil), gone}
	if queueing.FirstWaiting(others) != nil {
		t.Error("a pod that runs, is not managed or is deleted waits")
	}
	later := gated(managed)
	waiting.Name, later.Name = "a", "b"
	for _, pods := range [][]*corev1.Pod{{waiting, later}, {later, waiting}} {
		if queueing.FirstWaiting(append(others, pods...)) != waiting {
			t.Error("the first pod by name that waits is not found")
		}
	}
}
