// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package intern

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// unchanged is a transformation that drops nothing.
func unchanged(in any) (any, error) { return in, nil }

// podOf returns a pod of a job.
func podOf(job string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Name: job, Controller: ptr.To(true),
		}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "di-container"}}},
	}
}

func TestPodsWithEqualResourcesShareThem(t *testing.T) {
	t.Parallel()
	transform := New().After(unchanged)
	pod := func(cpu string) *corev1.Pod {
		pod := podOf("a")
		resources := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
		pod.Spec.Containers[0].Resources = resources
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Resources: &resources, AllocatedResources: resources.Requests}}
		return pod
	}
	kept := make([]*corev1.Pod, 0, 3)
	for _, cpu := range []string{"2", "2", "3"} {
		want, err := unchanged(pod(cpu))
		expect.NoError(t, err)
		got, err := transform(pod(cpu))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("error %v; pod (-want +got):\n%s", err, diff)
		}
		shared, _ := got.(*corev1.Pod)
		kept = append(kept, shared)
	}
	address := func(list corev1.ResourceList) uintptr { return reflect.ValueOf(list).Pointer() }
	first, other := address(kept[0].Spec.Containers[0].Resources.Requests), address(kept[2].Spec.Containers[0].Resources.Requests)
	for _, list := range []corev1.ResourceList{
		kept[1].Spec.Containers[0].Resources.Requests, kept[1].Status.ContainerStatuses[0].Resources.Requests, kept[1].Status.ContainerStatuses[0].AllocatedResources,
	} {
		if address(list) != first || first == other {
			t.Errorf("the pods do not share equal resources alone: %x, %x and %x", first, address(list), other)
		}
	}
}

// cachedBy returns what a cache with these parts keeps of an object, and checks that it is the same as
// without them.
func cachedBy[T client.Object](t *testing.T, parts *Parts, object T) T {
	t.Helper()
	alone, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		t.Fatalf("a copy of %T is no object", object)
	}
	want, err := unchanged(alone)
	expect.NoError(t, err)
	got, err := parts.After(unchanged)(object)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("error %v; object (-want +got):\n%s", err, diff)
	}
	cached, is := got.(T)
	if !is {
		t.Fatalf("cached is a %T, want a %T", got, object)
	}
	return cached
}

// addressOf returns the address of a map, list or pointer.
func addressOf(value any) uintptr { return reflect.ValueOf(value).Pointer() }

// runningPod returns a running pod of a job with labels of its own.
func runningPod(name, job string) *corev1.Pod {
	pod := podOf(job)
	pod.Name = name
	pod.Labels, pod.Annotations = map[string]string{"pod": name, "job": strings.Clone(job)}, map[string]string{"rank": "0"}
	pod.Spec.NodeName = strings.Clone("node")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DI_JOB_ID", Value: job}}
	started := metav1.NewTime(time.Unix(1_800_000_000, 0))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "di-container", Ready: true}}
	return pod
}

func TestPodsOfAJobShareAllThatIsEqual(t *testing.T) {
	t.Parallel()
	parts := New()
	first, second := cachedBy(t, parts, runningPod("a-0", "a")), cachedBy(t, parts, runningPod("a-1", "a"))
	other := cachedBy(t, parts, runningPod("b-0", "b"))
	equal := map[string]func(*corev1.Pod) any{
		"annotations": func(pod *corev1.Pod) any { return pod.Annotations },
		"owner":       func(pod *corev1.Pod) any { return pod.OwnerReferences },
		"containers":  func(pod *corev1.Pod) any { return pod.Spec.Containers },
		"conditions":  func(pod *corev1.Pod) any { return pod.Status.Conditions },
		"statuses":    func(pod *corev1.Pod) any { return pod.Status.ContainerStatuses },
		"node":        func(pod *corev1.Pod) any { return unsafe.StringData(pod.Spec.NodeName) },
		"a label":     func(pod *corev1.Pod) any { return unsafe.StringData(pod.Labels["job"]) },
	}
	for what, of := range equal {
		if addressOf(of(first)) != addressOf(of(second)) {
			t.Errorf("pods of a job do not share %s", what)
		}
	}
	if addressOf(first.Labels) == addressOf(second.Labels) || addressOf(first.OwnerReferences) == addressOf(other.OwnerReferences) {
		t.Error("pods share what differs")
	}
}

func TestAServiceSharesItsLabelsWithItsSelector(t *testing.T) {
	t.Parallel()
	owner := runningPod("a-0", "a").OwnerReferences
	labels := func() map[string]string { return map[string]string{"pod": "a-0", "job": "a"} }
	service := cachedBy(t, New(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a-0", Labels: labels(), OwnerReferences: owner},
		Spec:       corev1.ServiceSpec{Selector: labels(), ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 1}}},
	})
	if addressOf(service.Labels) != addressOf(service.Spec.Selector) {
		t.Error("a Service does not share its labels with its selector")
	}
}

func TestJobsShareTemplatesAndCountsOfPods(t *testing.T) {
	t.Parallel()
	job := func(name string) *v2alpha1.DIJob {
		job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: name}}
		job.Spec.Tasks = append(make([]v2alpha1.Task, 0, 4), v2alpha1.Task{Name: "worker"})
		job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{}}`)
		job.Status.TaskStatus = map[string]v2alpha1.TaskStatus{"worker": {corev1.PodRunning: 5}}
		job.Status.Scaling = &v2alpha1.ScalingStatus{SpecReplicas: map[string]int32{"worker": 5}}
		return job
	}
	parts := New()
	first, second := cachedBy(t, parts, job("a")), cachedBy(t, parts, job("b"))
	for what, of := range map[string]func(*v2alpha1.DIJob) any{
		"the template":         func(job *v2alpha1.DIJob) any { return job.Spec.Tasks[0].Template.Raw },
		"the counts":           func(job *v2alpha1.DIJob) any { return job.Status.TaskStatus },
		"the desired replicas": func(job *v2alpha1.DIJob) any { return job.Status.Scaling.SpecReplicas },
	} {
		if addressOf(of(first)) != addressOf(of(second)) {
			t.Errorf("jobs do not share %s", what)
		}
	}
	if room := cap(first.Spec.Tasks); room != 1 {
		t.Errorf("a list of 1 task has room for %d", room)
	}
}

func TestJobsWhoseCountsPrintAsTheSameCharacterKeepTheirs(t *testing.T) {
	t.Parallel()
	transform := New().After(unchanged)
	for _, count := range []int32{1, 0xD800, 0xDFFF, 0xFFFD, 1_200_000, 2_000_000} {
		got, err := transform(&v2alpha1.DIJob{Status: v2alpha1.DIJobStatus{
			TaskStatus: map[string]v2alpha1.TaskStatus{"a": {corev1.PodRunning: count}},
			Scaling:    &v2alpha1.ScalingStatus{SpecReplicas: map[string]int32{"a": count}},
		}})
		job, isJob := got.(*v2alpha1.DIJob)
		if err != nil || !isJob {
			t.Fatal(got, err)
		}
		if running, replicas := job.Status.TaskStatus["a"][corev1.PodRunning], job.Status.Scaling.SpecReplicas["a"]; running != count || replicas != count {
			t.Errorf("%d is read as %d and %d", count, running, replicas)
		}
	}
}

func TestACacheKeepsABoundedNumberOfPartsToShare(t *testing.T) {
	t.Parallel()
	parts := New()
	first := runningPod("a-0", "a")
	first.Annotations["long"] = strings.Repeat("x", longestShared)
	cachedBy(t, parts, first)
	for i := range mostShared {
		cachedBy(t, parts, runningPod(fmt.Sprintf("b-%d", i), fmt.Sprint("b", i)))
	}
	if length := parts.known.Len(); length != mostShared {
		t.Errorf("%d parts are kept, want at most %d", length, mostShared)
	}
}
