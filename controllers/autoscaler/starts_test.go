// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// apart are how far the clocks of the cluster's machines are ahead of the autoscaler's.
var apart = map[string]time.Duration{"equal": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour}

func TestAProducerIsStuckAfterItWasObservedWithoutANodeForTwoMinutes(t *testing.T) {
	for clocks, ahead := range apart {
		now := time.Unix(1e9, 0)
		pod := groupedPod("collector", 0, "")
		pod.UID, pod.CreationTimestamp = "uid", metav1.NewTime(now.Add(ahead))
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(now.Add(ahead)),
		}}
		r := &roles{pools: []pool{{Pool: ratio.Pool{Task: "collector"}, requested: 1}}}
		known := starts{}
		for _, step := range []struct {
			after time.Duration
			stuck int32
		}{{0, 0}, {2 * time.Minute, 0}, {2*time.Minute + time.Second, 1}} {
			measured := ratio.Measurement{Pools: make([]ratio.PoolSize, 1)}
			known = r.survey(&measured, []corev1.Pod{pod}, known, now.Add(step.after))
			if got := measured.Pools[0].Stuck; got != step.stuck {
				t.Errorf("with clocks %s, after %s: %d are stuck, want %d", clocks, step.after, got, step.stuck)
			}
		}
		if known = r.survey(&ratio.Measurement{Pools: make([]ratio.PoolSize, 1)}, nil, known, now); len(known) > 0 {
			t.Errorf("a pod that is gone is remembered: %v", known)
		}
	}
}

func TestTheStartOfAProducerIsMeasuredByOneClock(t *testing.T) {
	for clocks, ahead := range apart {
		now := time.Unix(1e9, 0)
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "pod", UID: "uid", CreationTimestamp: metav1.NewTime(now.Add(ahead)), Labels: map[string]string{names.LabelTaskName: "collector"},
		}}
		r := &roles{pools: []pool{{Pool: ratio.Pool{Task: "collector"}, requested: 1}}}
		known := starts{}
		delayAfter := func(after time.Duration) time.Duration {
			measured := ratio.Measurement{Pools: make([]ratio.PoolSize, 1)}
			known = r.survey(&measured, []corev1.Pod{pod}, known, now.Add(after))
			return measured.StartDelays[0]
		}
		expect.Equal(t, "the delay at first, with clocks "+clocks, 0, delayAfter(0))
		expect.Equal(t, "the delay of a pod that starts, with clocks "+clocks, 40*time.Second, delayAfter(40*time.Second))
		// The kubelet took 90 seconds by its own clock. The autoscaler observed 80 of them.
		pod.Status.StartTime = ptr.To(metav1.NewTime(now.Add(2 * ahead)))
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(2*ahead + 90*time.Second)),
		}}
		expect.Equal(t, "the delay of a pod that is ready, with clocks "+clocks, 90*time.Second, delayAfter(80*time.Second))
		known = starts{}
		expect.Equal(t, "the delay after a restart of the operator, with clocks "+clocks, 90*time.Second, delayAfter(time.Hour))
	}
}
