// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// TestASheetOfPicturesIsTakenInABrowser shows a cluster as teams have it: PICTURES names the folder of its pictures.
func TestASheetOfPicturesIsTakenInABrowser(t *testing.T) {
	w, err := startWorld()
	t.Cleanup(func() { expect.NoError(t, w.end()) })
	expect.NoError(t, err)
	expect.NoError(t, w.live.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}))
	for _, team := range []string{"games", "robots"} {
		expect.NoError(t, w.live.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}))
		expect.NoError(t, w.live.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: account}}))
	}
	for name, gpus := range map[string]int{"a100-1": 8, "a100-2": 8, "l4-1": 4, "l4-2": 4, "cpu-1": 0} {
		w.machine(t, name, gpus)
		w.measured(t, name, fmt.Sprint(5+2*gpus), fmt.Sprintf("%dGi", 60+20*gpus))
	}
	learners := []*v2alpha1.DIJob{w.runs(t, "games", "breakout-ppo", "breakout", "a100-1", 4, 1), w.runs(t, "games", "breakout-impala", "breakout", "a100-2", 3, 2)}
	w.runs(t, "robots", "walker-sac", "walker", "l4-1", 3, 1)
	w.runs(t, "robots", "sim-collect", "", "cpu-1", 6, 0)
	w.line(t, "robots", "arm-grasp", 8, v2alpha1.PriorityHigh, "the job needs 8 GPUs of one node, and 6 are free on a100-2", 12*time.Minute)
	w.line(t, "games", "pong-sweep-7", 4, "", "the job needs 4 GPUs, and 3 of the quota are left", 40*time.Minute)
	w.failing(t, "games", "qbert-dqn")
	w.operated(t, "games", "qbert-dqn", func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Summary = v2alpha1.JobFailed, &v2alpha1.StatusSummary{Reason: v2alpha1.ReasonJobFailed}
		status.CompletionTimestamp = ptr.To(metav1.NewTime(time.Now().Add(10 * time.Second)))
		const why = "the replicas failed more often than spec.backoffLimit allows"
		status.Conditions = []v2alpha1.DIJobCondition{condition(string(v2alpha1.JobFailed), corev1.ConditionTrue, v2alpha1.ReasonJobFailed, why, 0)}
	})
	for i := range 6 {
		w.setStatus(t, w.workers(t, "games", fmt.Sprintf("pong-sweep-%d", i), v2alpha1.Task{Type: v2alpha1.TaskTypeLearner}), func(status *v2alpha1.DIJobStatus) {
			status.Phase, status.CompletionTimestamp = v2alpha1.JobSucceeded, ptr.To(metav1.NewTime(time.Now().Add(time.Duration(i)*time.Minute)))
		})
	}
	address := w.printedURL(t, "")
	step := 0
	control := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		step++
		for i, job := range learners {
			w.reports(t, job, step, i)
		}
	}))
	t.Cleanup(control.Close)
	inABrowser(t, "sheet.mjs", address.String(), control.URL)
}

// machine creates a node that is ready.
func (w *world) machine(t *testing.T, name string, gpus int) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cpu, memory := "64", "256Gi"
	if gpus > 0 {
		node.Labels = map[string]string{pages.LabelProduct: map[int]string{8: "NVIDIA-A100", 4: "NVIDIA-L4"}[gpus]}
		cpu, memory = fmt.Sprint(12*gpus), fmt.Sprintf("%dGi", 64*gpus)
	}
	expect.NoError(t, w.live.Create(t.Context(), node))
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), names.DefaultGPU: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	expect.NoError(t, w.live.Status().Update(t.Context(), node))
}

// runs creates a job that runs on a node, each replica with some GPUs.
func (w *world) runs(t *testing.T, namespace, name, group, node string, replicas int32, gpus int64) *v2alpha1.DIJob {
	t.Helper()
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6"), corev1.ResourceMemory: resource.MustParse("24Gi")}
	limits := corev1.ResourceList{names.DefaultGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
	selector := ""
	if gpus > 0 {
		selector = fmt.Sprintf(`"nodeSelector":{%q:"NVIDIA-%s"},`, pages.LabelProduct, strings.ToUpper(strings.Split(node, "-")[0]))
	}
	template := fmt.Sprintf(`{"spec":{%s"containers":[{"name":"di-container","image":"example.com/train:1.4","resources":{"requests":{"cpu":"6","memory":"24Gi"},"limits":{%q:"%d"}}}]}}`,
		selector, names.DefaultGPU, gpus)
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	job.Spec.Group = group
	job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner, Replicas: &replicas, Template: jobs.Raw(template)}}
	job.Spec.Elastic = &v2alpha1.Elastic{Task: "learner", Replicas: &replicas, MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](8)}
	expect.NoError(t, w.live.Create(t.Context(), job))
	for i := range replicas {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.WorkerPod(name, "learner", i), OwnerReferences: jobs.Owner(job)},
			Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{
				Name: names.Container, Image: "example.com/train:1.4", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
			}}},
		}
		pod.Labels = names.WorkerLabels(name, v2alpha1.TaskTypeLearner, "learner", pod.Name)
		expect.NoError(t, w.live.Create(t.Context(), pod))
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, ptr.To(metav1.NewTime(time.Now().Add(-90*time.Minute)))
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: names.Container, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		expect.NoError(t, w.live.Status().Update(t.Context(), pod))
	}
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Replicas, status.ReadyReplicas, status.ObservedGeneration = v2alpha1.JobRunning, replicas, replicas, job.Generation
		status.TaskStatus = map[string]v2alpha1.TaskStatus{"learner": {corev1.PodRunning: replicas}}
		status.Conditions = []v2alpha1.DIJobCondition{condition(string(v2alpha1.JobRunning), corev1.ConditionTrue, "", "", 0)}
	})
	return job
}

// line creates a job that waits for room.
func (w *world) line(t *testing.T, namespace, name string, gpus int, priority v2alpha1.Priority, why string, since time.Duration) {
	t.Helper()
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	job.Spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner, Replicas: ptr.To[int32](1), Template: gpuTemplate(gpus)}}
	job.Spec.Priority = priority
	expect.NoError(t, w.live.Create(t.Context(), job))
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Summary = v2alpha1.JobPending, &v2alpha1.StatusSummary{Reason: v2alpha1.ReasonInsufficientCapacity}
		status.ObservedGeneration = job.Generation
		status.Conditions = []v2alpha1.DIJobCondition{condition(v2alpha1.ConditionAllocated, corev1.ConditionFalse, v2alpha1.ReasonInsufficientCapacity, why, since)}
	})
}

// reports writes what a job reports at a step.
func (w *world) reports(t *testing.T, job *v2alpha1.DIJob, step, place int) {
	t.Helper()
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	reward := 200*(1-math.Exp(-float64(step)/(9+4*float64(place)))) + 4*math.Sin(float64(step*(3+place)))
	job.Status.Profilings = ptr.To(jobs.Raw(fmt.Sprintf(`{"reward": %.2f, "throughput": %.0f, "loss": %.4f, "progress": {"done": %d, "total": 40000, "unit": "steps"}}`,
		reward, 1800+40*math.Cos(float64(step))+float64(place)*300, 2*math.Exp(-float64(step)/8)+0.05, step*1000)))
	expect.NoError(t, w.live.Status().Update(t.Context(), job))
}
