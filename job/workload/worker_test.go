// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAWorkerKnowsItsPlace(t *testing.T) {
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "uid"},
		Spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeNone, Name: "my-task", Template: raw(plain)},
		}},
	}
	assignment := &Assignment{
		Replicas: []Replica{{Rank: 2, Pod: "job-my-task-0"}, {Index: 1, Rank: 0, Pod: "job-my-task-1"}},
		Nodes:    []string{"job-my-task-1", "", "job-my-task-0"},
		Attempt:  3, Reschedule: 2,
	}
	builder := NewBuilder(job, Settings{ServiceDomain: "svc.other"})
	pod, err := builder.Worker(assignment, &assignment.Replicas[0])
	expect.NoError(t, err)
	wantEnv := map[string]string{
		"DI_JOB_ID":        "space.job.5",
		"DI_SERVER_URL":    "http://di-server.di-system.svc.cluster.local:8081",
		"DI_RANK":          "2",
		"DI_NODES":         "job-my-task-1.di-job.space.svc.other,,job-my-task-0.di-job.space.svc.other",
		"DI_MY_TASK_NODES": "job-my-task-0.di-job.space.svc.other,job-my-task-1.di-job.space.svc.other",
	}
	expect.Equal(t, "environment", wantEnv, environmentBy(&pod.Spec.Containers[0], nodesOf(t, builder, assignment)))
	wantAnnotations := map[string]string{
		"diengine/replicas": "2", "diengine/rank": "2", "diengine/task-rank": "0", "diengine/node": "", "diengine/containers": "di-container",
		"diengine/attempt": "3", "diengine/reschedule": "2",
	}
	expect.Equal(t, "annotations", wantAnnotations, pod.Annotations)
	wantLabels := map[string]string{
		"diengine/operator": "di-operator", "diengine/job": "job", "diengine/task-type": "none",
		"diengine/task-name": "my-task", "diengine/pod": "job-my-task-0",
	}
	expect.Equal(t, "labels", wantLabels, pod.Labels)
	if pod.Spec.Hostname != "job-my-task-0" || pod.Spec.Subdomain != "di-job" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("host %s.%s restarts %s, want job-my-task-0.di-job and Never", pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.RestartPolicy)
	}
	expect.Equal(t, "ports", map[string]int32{"di-port": 22270}, ports(&pod.Spec.Containers[0]))
	expect.Equal(t, "nodes read back", assignment.Nodes, ReadNodes(ToldNodes(pod, map[string]*corev1.ConfigMap{NodesOf(pod): nodesOf(t, builder, assignment)})))
}

func TestOnlyAPreemptibleJobsPodsNameTheirNode(t *testing.T) {
	for preemptible, want := range map[bool]string{true: "node-b", false: ""} {
		job := &v2alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space"},
			Spec: v2alpha1.DIJobSpec{
				Preemptible: preemptible, Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: "task", Template: raw(plain)}},
			},
			Status: v2alpha1.DIJobStatus{Allocation: []string{"node-a", "node-b"}},
		}
		assignment := &Assignment{Replicas: []Replica{{Rank: 1, Pod: "job-task-0"}}}
		pod, err := NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[0])
		expect.NoError(t, err)
		expect.Equal(t, fmt.Sprintf("preemptible %v: the node", preemptible), want, pod.Annotations["diengine/node"])
	}
}

func TestTheServiceOfWorkersPublishesThoseThatAreNotReady(t *testing.T) {
	service := WorkerService(&v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space"}})
	want := corev1.ServiceSpec{
		ClusterIP:                corev1.ClusterIPNone,
		Selector:                 map[string]string{"diengine/operator": "di-operator", "diengine/job": "job"},
		Ports:                    []corev1.ServicePort{{Name: "di-port", Port: 22270, Protocol: corev1.ProtocolTCP}},
		PublishNotReadyAddresses: true,
	}
	expect.Equal(t, "service", want, service.Spec)
	expect.Equal(t, "service is named", "di-job", service.Name)
}

func TestAPlacedPodMayRunOnNoOtherNodeByWhicheverTermOfItsTemplate(t *testing.T) {
	east := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"east"}}}}
	ours := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-b"}}
	for name, own := range map[string]*corev1.Affinity{
		"no affinity":          nil,
		"no affinity to nodes": {PodAffinity: &corev1.PodAffinity{}},
		"two terms": {NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{east, {MatchFields: []corev1.NodeSelectorRequirement{ours}}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{Affinity: own.DeepCopy()}
			place(spec, "node-b")
			terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			for _, term := range terms {
				if last := term.MatchFields[len(term.MatchFields)-1]; last.Key != ours.Key || last.Values[0] != "node-b" {
					t.Errorf("a term leads elsewhere: %+v", term)
				}
			}
			if own != nil && own.NodeAffinity != nil && len(terms) != 2 {
				t.Errorf("%d terms are left of 2", len(terms))
			}
			expect.Equal(t, "the pod goes around the scheduler", "", spec.NodeName)
		})
	}
}

func TestAPodInItsHostsNetworkResolvesServices(t *testing.T) {
	for policy, want := range map[corev1.DNSPolicy]corev1.DNSPolicy{
		"": corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst: corev1.DNSClusterFirstWithHostNet,
		corev1.DNSDefault: corev1.DNSDefault, corev1.DNSNone: corev1.DNSNone,
	} {
		for _, isInHosts := range []bool{true, false} {
			builder := NewBuilder(&v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}}, Settings{})
			pod := builder.newPod(&corev1.PodTemplateSpec{Spec: corev1.PodSpec{HostNetwork: isInHosts, DNSPolicy: policy}}, "p")
			if !isInHosts {
				want = policy
			}
			expect.Equal(t, "policy of "+string(policy), want, pod.Spec.DNSPolicy)
		}
	}
}
