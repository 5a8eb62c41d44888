// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// templateStates are those of jobs of v1.0.0, whose like replicas come of one
// template.
func templateStates() []state {
	return []state{
		{name: "submitted", spec: templateSpec(nil)},
		{
			name: "running", phase: "Running", spec: templateSpec(map[string]any{"group": "team-a"}), services: templateServices,
			status: templateStatus("Running", 1, 2), pods: templatePods(1, runs),
		},
		{
			name: "restarting", phase: "Restarting", spec: templateSpec(nil), services: templateServices,
			status: templateStatus("Restarting", 1, 0),
		},
		{
			name: "succeeded", phase: "Succeeded", spec: templateSpec(map[string]any{"cleanPodPolicy": "None"}),
			status: templateStatus("Succeeded", 0, 0), pods: templatePods(0, ended(0)),
		},
		{
			name: "failed", phase: "Failed", spec: templateSpec(map[string]any{"cleanPodPolicy": "None"}),
			status: templateStatus("Failed", 2, 0), pods: templatePods(2, ended(1)),
		},
	}
}

func templateSpec(more map[string]any) map[string]any {
	spec := map[string]any{
		"minReplicas": int64(2), "maxReplicas": int64(4), "engineFields": map[string]any{"topology": "mesh", "parallelWorkers": int64(2)},
		"template": template("worker:old", 0),
	}
	maps.Copy(spec, more)
	return spec
}

func templateStatus(phase string, generation, ready int64) map[string]any {
	return map[string]any{
		"phase": phase, "generation": generation, "replicas": int64(2), "readyReplicas": ready,
		"conditions": []any{condition(phase, corev1.ConditionTrue, "Job"+phase, "job is "+strings.ToLower(phase))},
	}
}

// templatePods are two of a generation.
func templatePods(generation int, is func(*corev1.Pod)) func(*owner) []*corev1.Pod {
	return func(of *owner) []*corev1.Pod {
		name := func(rank int) string { return fmt.Sprintf("%s-%d-%d", of.name, generation, rank) }
		var pods []*corev1.Pod
		for rank := range 2 {
			labels := templateLabels(of)
			labels["diengine/rank"], labels["diengine/pod"] = strconv.Itoa(rank), name(rank)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: of.namespace, Name: name(rank), OwnerReferences: []metav1.OwnerReference{of.reference}, Labels: labels,
					Annotations: map[string]string{
						"diengine/generation": strconv.Itoa(generation), "diengine/replicas": "2", "diengine/rank": strconv.Itoa(rank), "diengine/node": "",
					},
				},
				Spec: corev1.PodSpec{
					Hostname: name(rank), Subdomain: of.name, RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{Name: "di-container", Image: "worker:old", Env: []corev1.EnvVar{
						{Name: "DI_JOB_ID", Value: of.namespace + "/" + of.name}, {Name: "DI_JOB_GENERATION", Value: strconv.Itoa(generation)},
						{Name: "DI_SERVER_URL", Value: "http://di-server.di-system.svc.cluster.local:8081"}, {Name: "DI_RANK", Value: strconv.Itoa(rank)},
						{Name: "DI_NODES", Value: name(0) + "." + of.name + "," + name(1) + "." + of.name},
					}}},
				},
			}
			is(pod)
			pods = append(pods, pod)
		}
		return pods
	}
}

func templateLabels(of *owner) map[string]string {
	return map[string]string{"diengine/operator": "di-operator", "diengine/group": "", "diengine/job": of.name}
}

func templateServices(of *owner, _ []*corev1.Pod) []*corev1.Service {
	return []*corev1.Service{headless(of, of.name, templateLabels(of))}
}
