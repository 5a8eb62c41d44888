// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/picture"
)

// TestThePictureOfAPageIsCurrent draws the page of a job whose image cannot be pulled.
func TestThePictureOfAPageIsCurrent(t *testing.T) {
	t.Parallel()
	p := newJob()
	p.Now, p.Job.CreationTimestamp = now, ago(3*time.Minute)
	p.Job.Spec.Tasks = append([]v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner}}, p.Job.Spec.Tasks...)
	const pulls = `pong-collector-1 (collector): image "rl/pong:v3" of container di-container cannot be pulled`
	started, stalled := ago(170*time.Second), ago(2*time.Minute)
	p.Job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobStarting, Replicas: 3, ReadyReplicas: 2, ObservedGeneration: 1, Summary: &v2alpha1.StatusSummary{Reason: v2alpha1.ReasonImagePull},
		TaskStatus: map[string]v2alpha1.TaskStatus{"collector": {corev1.PodRunning: 1, corev1.PodPending: 1}, "learner": {corev1.PodRunning: 1}},
		Conditions: []v2alpha1.DIJobCondition{
			{Type: "Starting", Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonJobStarting, Message: "pods are created, 3 replicas are desired", LastTransitionTime: &started},
			{Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonImagePull, Message: pulls, LastTransitionTime: &stalled},
		},
	}
	runs := corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	waits := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}}
	p.Pods = []*corev1.Pod{
		pod("learner", "pong-learner-0", "0", runs), pod("collector", "pong-collector-0", "1", runs), pod("collector", "pong-collector-1", "2", waits),
	}
	for _, one := range p.Pods {
		one.CreationTimestamp = ago(170 * time.Second)
	}
	p.Job.Spec.BackoffLimit = ptr.To[int32](0)
	p.Events = []*corev1.Event{
		{Type: "Normal", Reason: v2alpha1.ReasonJobStarting, Message: "pods are created, 3 replicas are desired", LastTimestamp: started, Source: corev1.EventSource{Component: "di-operator"}},
		{Type: "Warning", Reason: v2alpha1.ReasonImagePull, Message: pulls, LastTimestamp: metav1.NewTime(now.Add(-2 * time.Minute)), Source: corev1.EventSource{Component: "di-operator"}},
	}
	picture.Check(t, *update, "kubectl-di-describe", "kubectl di describe pong -n rl", string(p.render()))
}
