// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// worker contains the differences between the releases from v1.1.0 to v1.1.3: the prefixes of the
// job's Service and of its pods' subdomain, and whether labels record the pods' tasks.
type worker struct {
	service, subdomain string
	taskLabels         bool
}

// replica is a pod of a worker-led job.
type replica struct {
	task  string
	index int
	is    func(*corev1.Pod)
}

// team returns a learner, two collectors and an evaluator in the order of their ranks.
func team(is func(*corev1.Pod)) []replica {
	return []replica{{"learner", 0, is}, {"collector", 0, is}, {"collector", 1, is}, {"evaluator", 0, is}}
}

// otherwise returns a copy of the replicas in which one is in another state, or missing if is nil.
func otherwise(replicas []replica, rank int, is func(*corev1.Pod)) []replica {
	changed := slices.Clone(replicas)
	changed[rank].is = is
	return changed
}

// workerStates returns the states of jobs of v1.1.0 to v1.1.3.
func workerStates(w worker) []state {
	alone := workerSpec("Running", nil)
	alone["tasks"] = []any{map[string]any{"type": "none", "name": "main", "template": template("main:old", 0)}}
	placed := workerSpec("Running", map[string]any{"preemptible": true})
	nodes := []any{"node-a", "node-a", "node-b", "node-b"}
	return []state{
		{name: "submitted", spec: workerSpec("Running", nil)},
		{name: "pending", phase: "Pending", spec: workerSpec("Running", nil), status: workerStatus("Pending", nil)},
		{
			name: "starting", phase: "Starting", spec: workerSpec("Running", map[string]any{"priority": "high"}), services: w.services,
			status: workerStatus("Starting", map[string]any{"replicas": int64(4), "readyReplicas": int64(3)}),
			pods:   w.pods(nil, otherwise(team(runs), 2, waits)...),
		},
		{
			name: "running", phase: "Running", services: w.services,
			spec: workerSpec("All", map[string]any{"volumes": []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}}}),
			status: workerStatus("Running", map[string]any{"replicas": int64(4), "readyReplicas": int64(4), "taskStatus": map[string]any{
				"learner": map[string]any{"Running": int64(1)}, "collector": map[string]any{"Running": int64(2)}, "evaluator": map[string]any{"Running": int64(1)},
			}}),
			pods: w.pods(nil, team(runs)...),
		},
		{
			name: "alone", phase: "Running", spec: alone, services: w.services,
			status: workerStatus("Running", map[string]any{"replicas": int64(1), "readyReplicas": int64(1), "taskStatus": map[string]any{"main": map[string]any{"Running": int64(1)}}}),
			pods:   w.pods(nil, replica{"main", 0, runs}),
		},
		{
			name: "placed", phase: "Running", spec: placed, services: w.services,
			status: workerStatus("Running", map[string]any{"replicas": int64(4), "readyReplicas": int64(4), "allocation": nodes}),
			pods:   w.pods([]string{"node-a", "node-a", "node-b", "node-b"}, team(runs)...),
		},
		{
			name: "restarting", phase: "Restarting", spec: workerSpec("Running", nil), services: w.services,
			status: workerStatus("Restarting", map[string]any{"replicas": int64(4), "readyReplicas": int64(3), "restarts": int64(2)}),
			pods:   w.pods(nil, otherwise(team(runs), 2, ended(1))...),
		},
		{
			name: "rescheduling", phase: "Rescheduling", spec: workerSpec("Running", nil), services: w.services,
			status: workerStatus("Rescheduling", map[string]any{"replicas": int64(4), "readyReplicas": int64(3), "reschedules": int64(1)}),
			pods:   w.pods(nil, otherwise(team(runs), 3, nil)...),
		},
		{
			name: "succeeded", phase: "Succeeded", spec: workerSpec("None", nil),
			status: workerStatus("Succeeded", map[string]any{"replicas": int64(4), "completionTimestamp": "2023-01-09T09:00:00Z"}),
			pods:   w.pods(nil, team(ended(0))...),
		},
		{
			name: "failed", phase: "Failed", spec: workerSpec("Running", map[string]any{"backoffLimit": int64(1)}),
			status: workerStatus("Failed", map[string]any{"replicas": int64(4), "restarts": int64(1), "completionTimestamp": "2023-01-09T09:00:00Z"}),
			pods:   w.pods(nil, replica{"learner", 0, ended(1)}),
		},
		{
			name: "unknown", phase: "Unknown", spec: workerSpec("Running", nil), services: w.services,
			status: workerStatus("Unknown", map[string]any{"replicas": int64(4)}),
			pods:   w.pods(nil, team(runs)...),
		},
	}
}

func workerSpec(cleanPodPolicy string, more map[string]any) map[string]any {
	task := func(kind string, replicas int64) map[string]any {
		return map[string]any{"type": kind, "name": kind, "replicas": replicas, "template": template(kind+":old", 0)}
	}
	spec := map[string]any{
		"cleanPodPolicy": cleanPodPolicy, "tasks": []any{task("learner", 1), task("collector", 2), task("evaluator", 1)},
	}
	maps.Copy(spec, more)
	return spec
}

// workerStatus returns the status that these releases wrote: the last of all conditions is True.
func workerStatus(phase string, more map[string]any) map[string]any {
	said := []any{}
	if phase != "Pending" {
		said = append(said, condition("Pending", corev1.ConditionFalse, "JobPending", "job is pending"))
	}
	said = append(said, condition(phase, corev1.ConditionTrue, "Job"+phase, "job is "+strings.ToLower(phase)))
	status := map[string]any{"phase": phase, "conditions": said}
	maps.Copy(status, more)
	return status
}

// pods returns a function that creates the pods of a job, bound to nodes if given.
func (w worker) pods(nodes []string, replicas ...replica) func(*owner) []*corev1.Pod {
	return func(of *owner) []*corev1.Pod {
		var all []string
		for _, one := range replicas {
			all = append(all, w.fqdn(of, one.name(of)))
		}
		var pods []*corev1.Pod
		for rank, one := range replicas {
			if one.is == nil {
				continue
			}
			pod := w.pod(of, one, rank, len(replicas))
			w.tellNodes(of, pod, one, replicas, all)
			if nodes != nil {
				pod.Spec.NodeName, pod.Annotations["diengine/node"] = nodes[rank], nodes[rank]
			}
			one.is(pod)
			pods = append(pods, pod)
		}
		return pods
	}
}

func (r replica) name(of *owner) string { return fmt.Sprintf("%s-%s-%d", of.name, r.task, r.index) }

func (w worker) fqdn(of *owner, pod string) string {
	return fmt.Sprintf("%s.%s.%s.svc.cluster.local", pod, w.subdomain+of.name, of.namespace)
}

func (w worker) pod(of *owner, one replica, rank, replicas int) *corev1.Pod {
	name := one.name(of)
	kind := one.task
	if kind == "main" {
		kind = "none"
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{of.reference},
			Labels: w.labels(of),
			Annotations: map[string]string{
				"diengine/replicas": strconv.Itoa(replicas), "diengine/rank": strconv.Itoa(rank),
				"diengine/task-rank": strconv.Itoa(one.index), "diengine/node": "",
			},
		},
		Spec: corev1.PodSpec{
			Hostname: name, Subdomain: w.subdomain + of.name, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "di-container", Image: one.task + ":old",
				Ports: []corev1.ContainerPort{{Name: "di-port", ContainerPort: 22270, Protocol: corev1.ProtocolTCP}},
			}},
		},
	}
	pod.Labels["diengine/pod"] = name
	if w.taskLabels {
		pod.Labels["diengine/task-type"], pod.Labels["diengine/task-name"] = kind, one.task
	} else {
		pod.Annotations["diengine/task-type"] = kind
	}
	return pod
}

func (w worker) tellNodes(of *owner, pod *corev1.Pod, one replica, replicas []replica, all []string) {
	var own []string
	for rank, other := range replicas {
		if other.task == one.task {
			own = append(own, all[rank])
		}
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "DI_JOB_ID", Value: of.namespace + "/" + of.name},
		{Name: "DI_SERVER_URL", Value: "http://di-server.di-system.svc.cluster.local:8081"},
		{Name: "DI_RANK", Value: pod.Annotations["diengine/rank"]},
		{Name: "DI_NODES", Value: strings.Join(all, ",")},
		{Name: "DI_" + strings.ToUpper(one.task) + "_NODES", Value: strings.Join(own, ",")},
	}
}

// labels returns the labels of the job's Service, which are also its selector.
func (w worker) labels(of *owner) map[string]string {
	labels := map[string]string{"diengine/operator": "di-operator", "diengine/job": of.name}
	if !w.taskLabels {
		labels["diengine/group"] = ""
	}
	return labels
}

func (w worker) services(of *owner, _ []*corev1.Pod) []*corev1.Service {
	return []*corev1.Service{headless(of, w.service+of.name, w.labels(of))}
}
