// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func podOwnedBy(apiVersion, kind string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod", Namespace: "space", UID: "pod-uid", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, UID: "job-uid", Controller: ptr.To(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:      "di-container",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
			}},
		},
	}
}

func TestForeignPodsAreKeptForTheirResourcesOnly(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		apiVersion, kind string
		wantIndex        []string
		wantContainer    string
	}{
		"of a job":          {"diengine.opendilab.org/v2alpha1", "DIJob", []string{"job-uid"}, "di-container"},
		"of a legacy job":   {"diengine.opendilab.org/v1alpha1", "DIJob", []string{"job-uid"}, "di-container"},
		"of another group":  {"other.org/v1", "DIJob", nil, ""},
		"of another object": {"apps/v1", "ReplicaSet", nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := podOwnedBy(tc.apiVersion, tc.kind)
			expect.Equal(t, "index", tc.wantIndex, OwnerUID(pod))
			pod.Spec.NodeName = "node"
			kept, err := trimForeign(pod)
			expect.NoError(t, err)
			trimmed, ok := kept.(*corev1.Pod)
			if !ok || trimmed.Spec.Containers[0].Name != tc.wantContainer || trimmed.ManagedFields != nil {
				t.Errorf("kept is %+v, want container %q and no managed fields", kept, tc.wantContainer)
			}
			if trimmed.Spec.NodeName != "node" || !trimmed.Spec.Containers[0].Resources.Requests.Cpu().Equal(resource.MustParse("2")) {
				t.Errorf("kept is %+v, and not what it has of its node", trimmed.Spec)
			}
			if trimmed.Name != "pod" || trimmed.UID != "pod-uid" || trimmed.ResourceVersion != "1" {
				t.Errorf("kept is %+v, want the object's identity", trimmed.ObjectMeta)
			}
		})
	}
}

func TestOfAServiceOfAJobWhatTheOperatorPutsBackIsKept(t *testing.T) {
	t.Parallel()
	kept, err := trimForeign(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a-0", OwnerReferences: podOwnedBy("diengine.opendilab.org/v2alpha1", JobKind).OwnerReferences},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"pod": "a-0"}, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 1}},
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	})
	expect.NoError(t, err)
	service, is := kept.(*corev1.Service)
	if !is {
		t.Fatalf("kept is a %T", kept)
	}
	expect.Equal(t, "spec", corev1.ServiceSpec{Selector: map[string]string{"pod": "a-0"}, Ports: []corev1.ServicePort{{Port: 1}}}, service.Spec)
}

// podTold returns a pod of a job with a variable.
func podTold(name, value string) *corev1.Pod {
	pod := podOwnedBy("diengine.opendilab.org/v2alpha1", JobKind)
	pod.Name = name
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DI_NODES", Value: strings.Clone(value)}}
	return pod
}

// TestPodsOfAJobShareWhatTheyAreTold does not run in parallel, because it measures the heap.
func TestPodsOfAJobShareWhatTheyAreTold(t *testing.T) {
	const pods, length = 400, 1 << 17
	told := strings.Repeat("n", length)
	var kept []*corev1.Pod
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range pods {
		trimmed, err := trimForeign(podTold(fmt.Sprintf("pod-%d", i), told))
		expect.NoError(t, err)
		pod, ok := trimmed.(*corev1.Pod)
		if !ok {
			t.Fatalf("kept is a %T", trimmed)
		}
		if i%100 == 0 {
			// A shared value is still found after a garbage collection.
			runtime.GC()
		}
		kept = append(kept, pod)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, pod := range kept {
		if pod.Spec.Containers[0].Env[0].Value != told {
			t.Fatalf("pod %s is told something else", pod.Name)
		}
	}
	perPod := (int64(after.HeapAlloc) - int64(before.HeapAlloc) - length) / pods
	t.Logf("%d bytes a pod beside %d bytes that all share", perPod, length)
	if perPod > 4096 {
		t.Errorf("%d bytes a pod, want at most 4096: the heap grows with the square of the pods", perPod)
	}
}
