// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// words returns the words of each line.
func words(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "; ")
}

func TestATenantReadsWhatAJobCosts(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pong-learner-9", OwnerReferences: jobs.Owner(job)}}
	pod.Labels = names.WorkerLabels("pong", v2alpha1.TaskTypeLearner, "learner", pod.Name)
	pod.Spec = corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: names.Container, Image: "di", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("2Gi")},
		Limits:   corev1.ResourceList{names.DefaultGPU: resource.MustParse("3")},
	}}}}
	expect.NoError(t, w.live.Create(t.Context(), pod))
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, ptr.To(metav1.NewTime(time.Now().Add(-2*time.Hour)))
	expect.NoError(t, w.live.Status().Update(t.Context(), pod))
	expect.Equal(t, "the cost", "GPU hours 6; CPU hours 1; GiB hours 4; Pod hours 2; Pods 1 that exist", words(w.ranWell(t, ns, "cost", "pong", "--as", tenant)))
	priced := words(w.ranWell(t, ns, "cost", "pong", "--price", "gpu=2.5", "--price", "cpu=0.25", "--as", tenant))
	if !strings.Contains(priced, "Price 15.25;") {
		t.Errorf("the cost with prices is %s", priced)
	}
	data := w.ranWell(t, ns, "cost", "pong", "-o", "json", "--price", "memory=1", "--as", tenant)
	expect.Equal(t, "the JSON", `{; "pods": 1,; "podHours": 2,; "cpuHours": 1,; "memoryHours": 4,; "gpuHours": 6,; "price": 4; }`, words(data))
	if got := w.run(t, ns, "cost", "pong", "--price", "gpus=2"); got.code != cli.Usage || !strings.Contains(got.stderr, `--price "gpus=2": want gpu, cpu or memory`) {
		t.Errorf("got %+v", got)
	}
}

func TestTheHistoryKnowsWhatAJobCost(t *testing.T) {
	t.Parallel()
	m := remember(t)
	failed := pong("uid-1")
	failed.Requests = []record.Request{{Task: "learner", CPU: 2000, Memory: 4 << 30, GPUs: 4}}
	// The replicas ran for half an hour and for an hour and a half.
	failed.Replicas[0].Started, failed.Replicas[0].Ended = then(0), then(1800)
	failed.Replicas[1].Started, failed.Replicas[1].Ended = then(1800), then(7200)
	m.record(t, failed, nil)
	got := m.tells(t, "cost", "pong", "--price", "gpu=2")
	expect.Equal(t, "the cost", "GPU hours 8; CPU hours 4; GiB hours 8; Pod hours 2; Price 16.00; Pods 2 of the history", words(got))
}
