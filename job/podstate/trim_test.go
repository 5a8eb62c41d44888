// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// That decisions do not need more is tested with all of them, in package lifecycle.
func TestATrimmedPodKeepsWhatDecisionsRead(t *testing.T) {
	t.Parallel()
	resources := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	nodes := corev1.Volume{Name: names.NodesVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}
	ports := []corev1.ContainerPort{{Name: names.Port, ContainerPort: 1}}
	told := corev1.EnvVar{Name: names.EnvDINodes, Value: "a,b"}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	conditions := []corev1.PodCondition{{Type: corev1.PodInitialized}, ready, {Type: corev1.ContainersReady}}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Conditions: conditions, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "10.0.0.2", QOSClass: corev1.PodQOSBurstable,
	}, Spec: corev1.PodSpec{
		NodeName: "node", SchedulerName: "volcano", Subdomain: "j", RestartPolicy: corev1.RestartPolicyNever,
		Hostname: "j-worker-0", DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default", PriorityClassName: "high",
		Volumes:     []corev1.Volume{{Name: "token"}, nodes},
		Tolerations: []corev1.Toleration{{Key: "gpu"}},
		Containers: []corev1.Container{{
			Name: "a", Image: "i", Command: []string{"train"}, Resources: resources, Ports: ports,
			Env: []corev1.EnvVar{{Name: "WANDB_KEY", Value: "x"}, told}, VolumeMounts: []corev1.VolumeMount{{Name: "token"}},
		}},
	}}
	want := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{ready}}, Spec: corev1.PodSpec{
		NodeName: "node", SchedulerName: "volcano", Subdomain: "j", RestartPolicy: corev1.RestartPolicyNever,
		Volumes:    []corev1.Volume{nodes},
		Containers: []corev1.Container{{Name: "a", Image: "i", Resources: resources, Ports: ports, Env: []corev1.EnvVar{told}}},
	}}
	for range 2 {
		Trim(pod)
		expect.Equal(t, "pod", want, pod)
	}
}
