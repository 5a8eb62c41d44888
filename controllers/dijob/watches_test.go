// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/test/testkit/pods"
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
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
		}, false},
		"a node for one of a gang": {func(pod *corev1.Pod) { pod.Spec.NodeName = "node" }, true},
		"an address":               {func(pod *corev1.Pod) { pod.Status.PodIP = "10.0.0.1" }, false},
		"no node": {func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
		}, true},
		"a container that is being made": {waits("ContainerCreating", ""), false},
		"an image that is not found":     {waits("ErrImagePull", "not found"), true},
		"readiness": {func(pod *corev1.Pod) {
			pods.Ready(pod)
		}, true},
		"a crash loop": {waits("CrashLoopBackOff", ""), true},
		"an init container that waits": {func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: waiting("ErrImagePull", "")}}
		}, true},
		"an end of a container": {func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
		}, true},
	}
	for name, tc := range pods {
		t.Run("of a pod: "+name, func(t *testing.T) {
			t.Parallel()
			before := podOwnedBy("diengine.opendilab.org/v2alpha1", "DIJob")
			before.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("di-job")}
			after := before.DeepCopy()
			tc.change(after)
			if got := podChanges(clocktesting.NewFakePassiveClock(noon())).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %v, want %v", got, tc.want)
			}
		})
	}
	for name, tc := range stalledPods() {
		t.Run("of a stalled pod: "+name, func(t *testing.T) {
			t.Parallel()
			before := podOwnedBy("diengine.opendilab.org/v2alpha1", "DIJob")
			before.Spec.NodeName, before.Status.Phase, before.CreationTimestamp = "", corev1.PodPending, metav1.NewTime(noon())
			tc.before(before)
			after := before.DeepCopy()
			tc.change(after)
			if got := podChanges(clocktesting.NewFakePassiveClock(noon())).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %v, want %v", got, tc.want)
			}
		})
	}
	groups := map[string]struct {
		change func(spec, status map[string]any)
		want   bool
	}{
		"how many run": {func(_, status map[string]any) { status["running"] = int64(2) }, false},
		"its size":     {func(spec, _ map[string]any) { spec["minMember"] = int64(2) }, true},
		"why it waits": {func(_, status map[string]any) {
			status["conditions"] = []any{map[string]any{"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}}
		}, true},
	}
	for name, tc := range groups {
		t.Run("of a gang: "+name, func(t *testing.T) {
			t.Parallel()
			before := discover.NewGroup(schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"})
			spec, status := map[string]any{"minMember": int64(1)}, map[string]any{}
			after := before.DeepCopy()
			before.Object["spec"] = maps.Clone(spec)
			tc.change(spec, status)
			after.Object["spec"], after.Object["status"] = spec, status
			if got := discover.GroupChanges().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
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

// noon returns the time of these tests.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// waits makes the only container of a pod wait.
func waits(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "di-container", State: waiting(reason, message)}}
	}
}

// unschedulable sets the scheduler's message about a pod that no node fits.
func unschedulable(message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
		}}
	}
}

// assigned assigns a node to a pod.
func assigned(pod *corev1.Pod) {
	pod.Spec.NodeName = "node"
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
}

// preparing makes the node of a pod prepare its volumes since a time.
func preparing(since time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		assigned(pod)
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon().Add(-since))
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse,
		})
	}
}

type podChange struct {
	before, change func(*corev1.Pod)
	want           bool
}

// stalledPods are the changes by which the kubelet and the scheduler mark a pod as stalled.
func stalledPods() map[string]podChange {
	looping := func(restarts int32) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			waits("CrashLoopBackOff", "back-off")(pod)
			status := &pod.Status.ContainerStatuses[0]
			status.RestartCount = restarts
			status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
		}
	}
	return map[string]podChange{
		"a node before long": {func(*corev1.Pod) {}, assigned, false},
		"a node after long": {
			func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(noon().Add(-time.Hour)) }, assigned, true,
		},
		"volumes that are not mounted yet":   {assigned, preparing(0), true},
		"volumes that are mounted":           {preparing(0), assigned, false},
		"volumes that are mounted after all": {preparing(time.Hour), assigned, true},
		"the next look of the scheduler": {
			unschedulable("0/3 nodes are available: 3 Insufficient cpu."), unschedulable("0/4 nodes are available: 4 Insufficient cpu."), false,
		},
		"another cause": {
			unschedulable("0/3 nodes are available: 3 Insufficient cpu."), unschedulable("0/3 nodes are available: 3 Insufficient memory."), true,
		},
		"the next wait for an image":       {waits("ErrImagePull", "not found"), waits("ImagePullBackOff", `Back-off pulling image "a": ErrImagePull: not found`), false},
		"another wait for a restart":       {waits("CrashLoopBackOff", "back-off 10s"), waits("CrashLoopBackOff", "back-off 20s"), false},
		"a restart between two steps":      {looping(6), looping(7), false},
		"a restart that reaches a step":    {looping(9), looping(10), true},
		"a Secret that is there at last":   {waits("CreateContainerConfigError", `secret "a" not found`), waits("ContainerCreating", ""), true},
		"another Secret that is not there": {waits("CreateContainerConfigError", `secret "a" not found`), waits("CreateContainerConfigError", `secret "b" not found`), true},
	}
}
