// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

func TestWhatARoundRestsOnWakesTheAllocator(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}
	job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Preemptible: true}}
	tests := map[string]struct {
		matters func(client.Object) any
		before  client.Object
		after   func() client.Object
		want    bool
	}{
		"a node's heartbeat": {nodeMatters, node, func() client.Object {
			after := node.DeepCopy()
			after.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
			return after
		}, false},
		"a node that is cordoned": {nodeMatters, node, func() client.Object {
			after := node.DeepCopy()
			after.Spec.Unschedulable = true
			return after
		}, true},
		"a node that is tainted": {nodeMatters, node, func() client.Object {
			after := node.DeepCopy()
			after.Spec.Taints = []corev1.Taint{{Key: "a"}}
			return after
		}, true},
		"a node that is lost": {nodeMatters, node, func() client.Object {
			after := node.DeepCopy()
			after.Status.Conditions[0].Status = corev1.ConditionUnknown
			return after
		}, true},
		"a pod that has ended": {podMatters, pod, func() client.Object {
			after := pod.DeepCopy()
			after.Status.Phase = corev1.PodFailed
			return after
		}, true},
		"a pod that runs": {podMatters, pod, func() client.Object {
			after := pod.DeepCopy()
			after.Status.Phase = corev1.PodRunning
			return after
		}, false},
		"a pod that gets a node": {podMatters, &corev1.Pod{}, func() client.Object { return pod }, true},
		"a job that has finished": {jobMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Status.Conditions = []v2alpha1.DIJobCondition{{Type: "Failed", Status: corev1.ConditionTrue}}
			return after
		}, true},
		"a job that is suspended": {jobMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Spec.Suspend, after.Generation = ptr.To(true), 1
			return after
		}, true},
		"a job that was placed by hand": {jobMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Status.Allocation = []string{"a"}
			return after
		}, true},
		"a job that reports": {jobMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Status.ReadyReplicas, after.Status.Profilings = 1, &v2alpha1.RawObject{}
			return after
		}, false},
		"a report": {reportMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Status.Profilings = ptr.To(jobs.Raw(`{"version":1}`))
			return after
		}, true},
		"readiness and usage, beside reports": {reportMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Status.ReadyReplicas, after.Status.AllocationUsage = 1, &v2alpha1.AllocationUsage{Restarts: 1}
			return after
		}, false},
		"usage": {jobMatters, job, func() client.Object {
			after := job.DeepCopy()
			after.Status.AllocationUsage = &v2alpha1.AllocationUsage{Restarts: 1}
			return after
		}, false},
		"a job that is not preemptible": {jobMatters, &v2alpha1.DIJob{}, func() client.Object {
			return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := controllers.ChangesOf(tc.matters).Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after()}); got != tc.want {
				t.Errorf("it wakes: %v, want %v", got, tc.want)
			}
		})
	}
	gone := controllers.ChangesOf(podMatters)
	if !gone.Delete(event.DeleteEvent{Object: pod}) || gone.Delete(event.DeleteEvent{Object: &corev1.Pod{}}) || !gone.Create(event.CreateEvent{Object: pod}) {
		t.Error("not just pods with a node come and go")
	}
}

// delays is a queue that records what is added later. It keeps the earliest time of a request, as the
// controller's does.
type delays struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	earliest map[reconcile.Request]time.Duration
}

func (d *delays) AddAfter(request reconcile.Request, after time.Duration) {
	if before, waits := d.earliest[request]; !waits || after < before {
		d.earliest[request] = after
	}
}

func TestReportsOfManyJobsMakeOneRoundAfterAWhile(t *testing.T) {
	t.Parallel()
	queue := &delays{earliest: map[reconcile.Request]time.Duration{}}
	for range 1000 {
		delayRound(t.Context(), event.UpdateEvent{}, queue)
	}
	if len(queue.earliest) != 1 || queue.earliest[roundRequest()] != reportDelay {
		t.Errorf("the reports request %v, want one round after %s", queue.earliest, reportDelay)
	}
}
