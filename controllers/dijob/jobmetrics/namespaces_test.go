// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// world has the jobs and pods that metrics are read from.
type world struct {
	jobs v2alpha1.DIJobList
	pods corev1.PodList
}

func (w *world) submit(namespace string, phase v2alpha1.Phase) *v2alpha1.DIJob {
	w.jobs.Items = append(w.jobs.Items, v2alpha1.DIJob{})
	job := &w.jobs.Items[len(w.jobs.Items)-1]
	job.Namespace, job.Status.Phase = namespace, phase
	job.CreationTimestamp = metav1.NewTime(start().Add(time.Duration(len(w.jobs.Items)) * time.Minute))
	return job
}

func (w *world) run(namespace, owner, node string) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: v2alpha1.GroupVersion.String(), Kind: owner, Name: "job", UID: "1", Controller: ptr.To(true)}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}
	w.pods.Items = append(w.pods.Items, pod)
}

func (w *world) measure(t *testing.T, limit int) (*ByNamespace, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewByNamespace(registry, NamespaceOptions{
		Limit: limit, GPU: "nvidia.com/gpu", Clock: clocktesting.NewFakePassiveClock(start().Add(time.Hour)),
		Jobs: func() (*v2alpha1.DIJobList, error) { return &w.jobs, nil },
		Pods: func() (*corev1.PodList, error) { return &w.pods, nil },
	})
	expect.NoError(t, err)
	return metrics, registry
}

func stalled(since time.Duration, reason string) []v2alpha1.DIJobCondition {
	return []v2alpha1.DIJobCondition{{
		Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: ptr.To(metav1.NewTime(start().Add(since))),
	}}
}

// compare compares the samples of one metric.
func compare(t *testing.T, registry *prometheus.Registry, name string, want ...string) {
	t.Helper()
	families, err := registry.Gather()
	expect.NoError(t, err)
	var got []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			got = append(got, fmt.Sprintf("{%s} %v", strings.Join(labels, ","), metric.GetGauge().GetValue()+metric.GetCounter().GetValue()))
		}
	}
	expect.Equal(t, name, want, got)
}

func TestMetricsNameNamespacesUpToALimit(t *testing.T) {
	t.Parallel()
	w := &world{}
	w.submit("team-a", v2alpha1.JobRunning)
	w.submit("team-b", v2alpha1.JobPending)
	w.submit("team-c", v2alpha1.JobRestarting)
	w.submit("team-d", v2alpha1.JobPending).Spec.Suspend = ptr.To(true)
	w.run("team-a", "DIJob", "node-1")
	w.run("team-a", "DIJob", "")
	w.run("team-a", "ReplicaSet", "node-1")
	w.run("team-c", "DIJob", "node-2")
	w.run("team-d", "DIJob", "node-2")
	metrics, registry := w.measure(t, 2)
	compare(t, registry, "di_orchestrator_namespace_jobs",
		`{job_namespace="other",phase="Pending"} 1`, `{job_namespace="other",phase="Restarting"} 1`,
		`{job_namespace="team-a",phase="Running"} 1`, `{job_namespace="team-b",phase="Pending"} 1`)
	compare(t, registry, "di_orchestrator_namespace_waiting_jobs", `{job_namespace="other"} 1`, `{job_namespace="team-a"} 0`, `{job_namespace="team-b"} 1`)
	compare(t, registry, "di_orchestrator_namespace_replicas", `{job_namespace="other"} 2`, `{job_namespace="team-a"} 1`)
	compare(t, registry, "di_orchestrator_namespace_gpus", `{job_namespace="other"} 4`, `{job_namespace="team-a"} 2`)
	metrics.observeRestarts("team-b", 2)
	metrics.observeRestarts("team-c", 3)
	compare(t, registry, "di_orchestrator_namespace_restarts_total", `{job_namespace="other"} 3`, `{job_namespace="team-b"} 2`)
}

func TestANamespaceWithoutJobsGivesUpItsPlace(t *testing.T) {
	t.Parallel()
	w := &world{}
	w.submit("team-a", v2alpha1.JobRunning)
	metrics, registry := w.measure(t, 1)
	metrics.observeRestarts("team-a", 1)
	compare(t, registry, "di_orchestrator_namespace_waiting_jobs", `{job_namespace="team-a"} 0`)
	w.jobs.Items = nil
	compare(t, registry, "di_orchestrator_namespace_restarts_total", `{job_namespace="team-a"} 1`)
	w.submit("team-b", v2alpha1.JobRunning)
	compare(t, registry, "di_orchestrator_namespace_waiting_jobs", `{job_namespace="team-b"} 0`)
	compare(t, registry, "di_orchestrator_namespace_restarts_total")
}

func TestTheLongestStalledJobIsReportedWithoutNamespacesToo(t *testing.T) {
	t.Parallel()
	w := &world{}
	w.submit("team-a", v2alpha1.JobStarting).Status.Conditions = stalled(30*time.Minute, v2alpha1.ReasonImagePull)
	w.submit("team-b", v2alpha1.JobStarting).Status.Conditions = stalled(0, v2alpha1.ReasonImagePull)
	over := stalled(0, v2alpha1.ReasonCrashLoop)
	over[0].Status = corev1.ConditionFalse
	w.submit("team-b", v2alpha1.JobRunning).Status.Conditions = over
	_, none := w.measure(t, 0)
	compare(t, none, "di_orchestrator_stalled_job_seconds", `{job_namespace="other",reason="ImagePull"} 3600`)
	compare(t, none, "di_orchestrator_namespace_jobs")
	_, named := w.measure(t, 5)
	compare(t, named, "di_orchestrator_stalled_job_seconds",
		`{job_namespace="team-a",reason="ImagePull"} 1800`, `{job_namespace="team-b",reason="ImagePull"} 3600`)
}
