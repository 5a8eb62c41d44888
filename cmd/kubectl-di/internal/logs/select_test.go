// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

func TestTheFirstReplicaIsThatOfRankZeroOrTheCoordinator(t *testing.T) {
	t.Parallel()
	worker := func(index int32, rank string) *corev1.Pod {
		name := names.WorkerPod("pong", "learner", index)
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: names.WorkerLabels("pong", v2alpha1.TaskTypeLearner, "learner", name), Annotations: map[string]string{names.AnnotationRank: rank},
		}}
	}
	replica := func(role names.ReplicaType, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: names.ReplicaLabels("pong", role, name), Annotations: map[string]string{names.AnnotationRank: "0"},
		}}
	}
	for name, c := range map[string]struct {
		lifecycle v2alpha1.Lifecycle
		pods      []*corev1.Pod
		want      []string
	}{
		"worker-led": {v2alpha1.LifecycleWorkerLed, []*corev1.Pod{worker(0, "1"), worker(1, "0"), worker(2, "")}, []string{"pong-learner-1"}},
		"coordinator-led": {v2alpha1.LifecycleCoordinatorLed,
			[]*corev1.Pod{replica(names.ReplicaTypeCollector, "pong-collector-x"), replica(names.ReplicaTypeCoordinator, "pong-coordinator")}, []string{"pong-coordinator"}},
	} {
		job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "pong"}, Spec: v2alpha1.DIJobSpec{Lifecycle: c.lifecycle}}
		var got []string
		for _, pod := range c.pods {
			if (&selection{isFirst: true}).takes(job, pod) {
				got = append(got, pod.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
