// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func podOwnedBy(apiVersion, kind string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod", Namespace: "space", UID: "pod-uid", ResourceVersion: "1",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, UID: "job-uid", Controller: ptr.To(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node",
			Containers: []corev1.Container{{
				Name: "di-container",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
			}},
		},
	}
}

func TestOnlyPodsOfJobsAreKeptWhole(t *testing.T) {
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
			if diff := cmp.Diff(tc.wantIndex, controllerUID(pod)); diff != "" {
				t.Errorf("index (-want +got):\n%s", diff)
			}
			kept, err := trimForeign(pod)
			if err != nil {
				t.Fatal(err)
			}
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

func TestOnlyChangesThatMatterWakeTheOperator(t *testing.T) {
	t.Parallel()
	pods := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"a heartbeat": {func(pod *corev1.Pod) { pod.Annotations = map[string]string{"seen": "now"} }, false},
		"a phase":     {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }, true},
		"a deletion":  {func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }, true},
		"an eviction": {func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		}, true},
		"another condition": {func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		}, false},
		"an end of a container": {func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}, true},
	}
	for name, tc := range pods {
		t.Run("of a pod: "+name, func(t *testing.T) {
			t.Parallel()
			before := podOwnedBy("diengine.opendilab.org/v2alpha1", "DIJob")
			after := before.DeepCopy()
			tc.change(after)
			if got := podChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %v, want %v", got, tc.want)
			}
		})
	}
	jobs := map[string]struct {
		change func(*v2alpha1.DIJob)
		want   bool
	}{
		"a label":           {func(job *v2alpha1.DIJob) { job.Labels = map[string]string{"a": "b"} }, false},
		"a profiling":       {func(job *v2alpha1.DIJob) { job.Status.Profilings = &v2alpha1.RawObject{} }, false},
		"the spec":          {func(job *v2alpha1.DIJob) { job.Generation++ }, true},
		"a wished for size": {func(job *v2alpha1.DIJob) { job.Status.Replicas++ }, true},
	}
	for name, tc := range jobs {
		t.Run("of a job: "+name, func(t *testing.T) {
			t.Parallel()
			before := &v2alpha1.DIJob{}
			after := before.DeepCopy()
			tc.change(after)
			if got := jobChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %v, want %v", got, tc.want)
			}
		})
	}
}
