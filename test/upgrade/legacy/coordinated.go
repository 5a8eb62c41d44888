// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// coordinatedStates returns the states of jobs of v0.2.2.
func coordinatedStates() []state {
	serial := coordinatedSpec("Running", 0)
	delete(serial, "collector")
	delete(serial, "learner")
	shared := coordinatedSpec("All", 1)
	shared["group"], shared["priorityClassName"] = "team-a", "default"
	shared["volumes"] = []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}}
	return []state{
		{name: "submitted", spec: coordinatedSpec("Running", 1)},
		{
			name: "created", phase: "Created", spec: coordinatedSpec("Running", 1), services: coordinatedServices,
			status: coordinatedStatus("Created", 0, 0, 0, "Created"),
			pods:   coordinatedPods(role{kind: "coordinator", is: waits}),
		},
		{
			name: "serial", phase: "Running", spec: serial, services: coordinatedServices,
			status: coordinatedStatus("Running", 0, 0, 0, "Created", "Running"),
			pods:   coordinatedPods(role{kind: "coordinator", is: runs}),
		},
		{
			name: "running", phase: "Running", spec: shared, services: coordinatedServices,
			status: coordinatedStatus("Running", 2, 1, 0, "Created", "Running"),
			pods: coordinatedPods(
				role{kind: "coordinator", is: runs}, role{kind: "collector", suffix: "rz8jc", is: runs},
				role{kind: "collector", suffix: "2csfx", is: runs}, role{kind: "learner", suffix: "r8xbt", is: runs},
			),
		},
		{
			name: "cut", phase: "Running", spec: coordinatedSpec("None", 10), services: coordinatedServices,
			status: coordinatedStatus("Running", 0, 0, 1, "Created", "Running"),
			pods: coordinatedPods(
				role{kind: "coordinator", is: runs}, role{kind: "aggregator", suffix: "7hc88", is: runs},
				role{kind: "ddp-learner", suffix: "zzzzz", is: runs, start: 0, gpus: 8}, role{kind: "ddp-learner", suffix: "bbbbb", is: runs, start: 8, gpus: 2},
			),
		},
		{
			name: "succeeded", phase: "Succeeded", spec: coordinatedSpec("Running", 1),
			status: coordinatedStatus("Succeeded", 0, 0, 0, "Created", "Running", "Succeeded"),
			pods:   coordinatedPods(role{kind: "coordinator", is: ended(0)}),
		},
		{
			name: "failed", phase: "Failed", spec: coordinatedSpec("None", 1),
			status: coordinatedStatus("Failed", 1, 0, 0, "Created", "Running", "Failed"),
			pods:   coordinatedPods(role{kind: "coordinator", is: ended(1)}, role{kind: "collector", suffix: "mh2vq", is: runs}),
		},
		{
			name: "unknown", phase: "Unknown", spec: coordinatedSpec("All", 1), services: coordinatedServices,
			status: coordinatedStatus("Unknown", 0, 0, 0, "Created", "Unknown"),
			pods:   coordinatedPods(role{kind: "coordinator", is: runs}),
		},
	}
}

// coordinatedSpec returns the spec of a job whose learners request the given number of GPUs.
func coordinatedSpec(cleanPodPolicy string, gpus int64) map[string]any {
	role := func(image string, gpus int64) map[string]any {
		return map[string]any{"template": template(image, gpus)}
	}
	return map[string]any{
		"cleanPodPolicy": cleanPodPolicy,
		"coordinator":    role("coordinator:old", 0), "collector": role("collector:old", 0), "learner": role("learner:old", gpus),
	}
}

// coordinatedStatus returns the status that v0.2.2 wrote: Running remains True after the job has
// finished, Created never becomes True.
func coordinatedStatus(phase string, collectors, learners, aggregators int64, conditions ...string) map[string]any {
	coordinator := map[string]any{}
	switch phase {
	case "Running":
		coordinator["active"] = int64(1)
	case "Succeeded":
		coordinator["succeeded"] = int64(1)
	case "Failed":
		coordinator["failed"] = int64(1)
	}
	active := func(count int64) map[string]any {
		if count == 0 {
			return map[string]any{}
		}
		return map[string]any{"active": count}
	}
	said := []any{}
	for _, kind := range conditions {
		status := corev1.ConditionTrue
		if kind == "Running" && phase != "Running" {
			status = corev1.ConditionFalse
		}
		said = append(said, condition(kind, status, "DIJob"+kind, "the job is "+kind))
	}
	return map[string]any{
		"phase": phase, "conditions": said,
		"replicaStatus": map[string]any{
			"Coordinator": coordinator, "Collector": active(collectors), "Learner": active(learners), "Aggregator": active(aggregators),
		},
	}
}

// role is a pod of a job of v0.2.2.
type role struct {
	kind, suffix string
	is           func(*corev1.Pod)
	// start and gpus are the first GPU and the number of GPUs of a DDP learner in its unit of ten.
	start, gpus int
}

// world is the number of GPUs of a unit.
const world = 10

func coordinatedPods(roles ...role) func(*owner) []*corev1.Pod {
	return func(of *owner) []*corev1.Pod {
		var pods []*corev1.Pod
		for _, one := range roles {
			pod := one.pod(of)
			if one.kind == "ddp-learner" {
				aggregator := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Labels["replica-type"] == "aggregator" })
				one.cut(pod, pods[aggregator].Name, of.name)
			}
			pods = append(pods, pod)
		}
		return pods
	}
}

func (r role) pod(of *owner) *corev1.Pod {
	name := of.name + "-" + r.kind
	if r.suffix != "" {
		name += "-" + r.suffix
	}
	port := map[string]int{"coordinator": 22273, "collector": 22270, "learner": 22271, "ddp-learner": 22271, "aggregator": 22272}[r.kind]
	variable := map[string]string{
		"coordinator": "COORDINATOR_PORT", "collector": "COLLECTOR_PORT", "learner": "LEARNER_PORT", "ddp-learner": "LEARNER_PORT", "aggregator": "AGGREGATOR_PORT",
	}[r.kind]
	server := "di-server.di-system:8080"
	if r.kind == "coordinator" {
		server = "http://" + server
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{of.reference},
			Labels: map[string]string{
				"group-name": "diengine.opendilab.org", "dijob-name": of.name, "controller-name": "di-operator", "replica-type": r.kind, "pod-name": name,
			},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{
			Name: "di-container", Image: r.kind + ":old",
			Ports: []corev1.ContainerPort{{Name: "di-port", ContainerPort: int32(port), Protocol: corev1.ProtocolTCP}},
			Env: []corev1.EnvVar{
				{Name: "KUBERNETES_POD_NAMESPACE", Value: of.namespace}, {Name: "KUBERNETES_POD_NAME", Value: name},
				{Name: "KUBERNETES_SERVER_URL", Value: server}, {Name: variable, Value: strconv.Itoa(port)},
			},
		}}},
	}
	if r.kind == "coordinator" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	r.is(pod)
	return pod
}

// cut makes a pod a DDP learner of a unit with an aggregator.
func (r role) cut(pod *corev1.Pod, aggregator, job string) {
	master := "localhost"
	pod.Labels["ddp-learner-type"] = "ddp-learner-master"
	if r.start > 0 {
		pod.Labels["ddp-learner-type"], master = "ddp-learner-worker", job+"-ddp-learner-zzzzz"
	}
	pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: aggregator, Controller: ptr.To(false)})
	container := &pod.Spec.Containers[0]
	numbers := map[string]int{"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": r.gpus, "START_RANK": r.start, "MASTER_PORT": 10314}
	for _, key := range slices.Sorted(maps.Keys(numbers)) {
		container.Env = append(container.Env, corev1.EnvVar{Name: key, Value: strconv.Itoa(numbers[key])})
	}
	container.Env = append(container.Env, corev1.EnvVar{Name: "MASTER_ADDR", Value: master})
}

// coordinatedServices returns one service for each pod.
func coordinatedServices(of *owner, pods []*corev1.Pod) []*corev1.Service {
	var services []*corev1.Service
	for _, pod := range pods {
		service := headless(of, pod.Name, pod.Labels)
		service.OwnerReferences = pod.OwnerReferences
		service.Spec.Ports[0].Port = pod.Spec.Containers[0].Ports[0].ContainerPort
		services = append(services, service)
	}
	return services
}
