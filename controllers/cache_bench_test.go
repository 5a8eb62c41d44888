// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// encodedPod returns what the API server sends of a pod of a job of five.
func encodedPod(b *testing.B, number int) []byte {
	b.Helper()
	job, rank := fmt.Sprintf("job-%d", number/5), number%5
	name := fmt.Sprintf("%s-worker-%d", job, rank)
	ready := []corev1.PodCondition{}
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		ready = append(ready, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1_800_000_000+int64(number/50), 0)})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", number%10), Name: name, UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", number)),
			ResourceVersion: strconv.Itoa(1_000_000 + number),
			Labels: map[string]string{
				names.LabelOperator: names.ControllerName, names.LabelJob: job, names.LabelPod: name, names.LabelTaskName: "worker",
			},
			Annotations: map[string]string{names.AnnotationReplicas: "5", names.AnnotationRank: strconv.Itoa(rank), names.AnnotationAttempt: "0"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v2alpha1.GroupVersion.String(), Kind: JobKind, Name: job, UID: types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012d", number/5)),
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", number%200), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "di-container", Image: "registry.example.com/rl/train:v1",
				Env: []corev1.EnvVar{{Name: names.EnvDIJobID, Value: job}, {Name: "RANK", Value: strconv.Itoa(rank)}},
			}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.%d.%d.%d", number>>16, number>>8&255, number&255), Conditions: ready,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "di-container", Ready: true, Image: "registry.example.com/rl/train:v1"}},
		},
	}
	encoded, err := pod.Marshal()
	expect.NoError(b, err)
	return encoded
}

// BenchmarkCachedPods measures what the cache holds of a pod, and what it takes to put it there, with and without sharing
// equal parts.
func BenchmarkCachedPods(b *testing.B) {
	const pods = 20_000
	shared := CacheOptions().ByObject
	for name, transform := range map[string]func(any) (any, error){"apart": trimForeign, "shared": nil} {
		for object, by := range shared {
			if _, isPod := object.(*corev1.Pod); isPod && transform == nil {
				transform = by.Transform
			}
		}
		b.Run(name, func(b *testing.B) {
			encoded := make([][]byte, pods)
			for i := range encoded {
				encoded[i] = encodedPod(b, i)
			}
			for b.Loop() {
				held := make([]any, pods)
				before := heap()
				for i := range held {
					pod := &corev1.Pod{}
					expect.NoError(b, pod.Unmarshal(encoded[i]))
					object, err := transform(pod)
					expect.NoError(b, err)
					held[i] = object
				}
				b.ReportMetric(float64(heap()-before)/pods, "B-held/pod")
				runtime.KeepAlive(held)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pods, "ns/pod")
		})
	}
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
