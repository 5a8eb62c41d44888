// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestPodsDoNotGrowWithTheirJob(t *testing.T) {
	size := func(count int32) int {
		job := clusterJob([]string{"chief", "worker"}, tensorFlow, torch)
		assignment := assignmentOf(job, 1, count)
		pod, err := NewBuilder(job, sharedNodes()).Worker(assignment, &assignment.Replicas[1])
		expect.NoError(t, err)
		return pod.Size()
	}
	if few, many := size(10), size(1000); many > few+50 {
		t.Errorf("a pod of 1000 takes %d bytes, one of 10 takes %d", many, few)
	}
}

func TestTheSameRosterHasTheSameConfigMapInEveryAttempt(t *testing.T) {
	job := clusterJob([]string{"a", "b"})
	first, again, other := assignmentOf(job, 1, 2), assignmentOf(job, 1, 2), assignmentOf(job, 1, 3)
	again.Attempt = 1
	builder := NewBuilder(job, Settings{})
	one, same, another := nodesOf(t, builder, first), nodesOf(t, builder, again), nodesOf(t, builder, other)
	if one.Name != same.Name || one.Name == another.Name {
		t.Errorf("names are %s, %s of another attempt and %s of another size", one.Name, same.Name, another.Name)
	}
	later := job.DeepCopy()
	later.UID = "later"
	if !IsNodesConfigMap(job, one) || !ptr.Deref(one.Immutable, false) || IsNodesConfigMap(later, one) {
		t.Errorf("%+v is not known to be the job's", one.ObjectMeta)
	}
	for name, forge := range map[string]func(*corev1.ConfigMap){
		"another value":  func(c *corev1.ConfigMap) { c.Data[names.EnvDINodes] += "x" },
		"another key":    func(c *corev1.ConfigMap) { c.Data["more"] = "" },
		"bytes":          func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{"a": nil} },
		"may be changed": func(c *corev1.ConfigMap) { c.Immutable = nil },
	} {
		forged := one.DeepCopy()
		if forge(forged); IsNodesConfigMap(job, forged) {
			t.Errorf("%s: it is taken for genuine", name)
		}
	}
}

func TestAListThatNoVariableCarriesIsAFile(t *testing.T) {
	job := clusterJob([]string{"few", "many"})
	assignment := assignmentOf(job, 3, 4000)
	builder := NewBuilder(job, Settings{})
	configMap := nodesOf(t, builder, assignment)
	for replica, want := range map[int]map[string]string{
		0: {"DI_NODES": "@/etc/diengine/nodes/DI_NODES", "DI_NODES_FILE": "/etc/diengine/nodes/DI_NODES", "DI_FEW_NODES": configMap.Data["DI_FEW_NODES"]},
		3: {"DI_NODES": "@/etc/diengine/nodes/DI_NODES", "DI_NODES_FILE": "/etc/diengine/nodes/DI_NODES", "DI_MANY_NODES": "@/etc/diengine/nodes/DI_MANY_NODES"},
	} {
		pod, err := builder.Worker(assignment, &assignment.Replicas[replica])
		expect.NoError(t, err)
		told := environmentBy(&pod.Spec.Containers[1], configMap)
		for name, value := range want {
			if told[name] != value || value == "" {
				t.Errorf("%s: %s is %.60q, want %.60q", pod.Name, name, told[name], value)
			}
		}
		for _, container := range pod.Spec.Containers {
			if mounts := container.VolumeMounts; len(mounts) != 2 || mounts[0].MountPath != names.NodesDirectory || !mounts[0].ReadOnly {
				t.Errorf("%s: container %s mounts %+v", pod.Name, container.Name, mounts)
			}
		}
		expect.Equal(t, pod.Name+" refers to", configMap.Name, NodesOf(pod))
		nodes := ReadNodes(ToldNodes(pod, map[string]*corev1.ConfigMap{configMap.Name: configMap}))
		if len(nodes) != 4003 || nodes[replica] != pod.Name {
			t.Errorf("%s: %d nodes are read back, at its rank %q", pod.Name, len(nodes), nodes[replica])
		}
	}
}

func TestFiveThousandReplicasOfUsualNamesFit(t *testing.T) {
	job := clusterJob([]string{"learner", "collector"})
	job.Name, job.Namespace = "atari-pong-impala", "team-reinforcement"
	assignment := assignmentOf(job, 10, 4990)
	for i := range assignment.Replicas {
		assignment.Replicas[i].Pod = strings.Replace(assignment.Replicas[i].Pod, "job-", job.Name+"-", 1)
		assignment.Nodes[i] = assignment.Replicas[i].Pod
	}
	if _, err := NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[0]); err != nil {
		t.Error(err)
	}
}

func TestWhatNothingCanCarryIsSaid(t *testing.T) {
	job := clusterJob([]string{"few", "many"})
	job.Namespace = strings.Repeat("n", 63)
	assignment := assignmentOf(job, 3, 5000)
	assignment.Subdomain = strings.Repeat("s", 63)
	_, err := NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[0])
	if err == nil || !strings.Contains(err.Error(), "spec.tasks: the addresses of all 5003 replicas take") {
		t.Errorf("too much for a ConfigMap: %v", err)
	}
	job = clusterJob([]string{"ps", "worker"}, tensorFlow)
	assignment = assignmentOf(job, 3, 4000)
	_, err = NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[0])
	if err == nil || !strings.Contains(err.Error(), "spec.clusterSpec: TensorFlow reads the addresses of all 4003 replicas in TF_CONFIG") {
		t.Errorf("too much for TF_CONFIG: %v", err)
	}
}

func TestAVolumeOfTheSameNameIsSaidToBeInTheWay(t *testing.T) {
	job := clusterJob([]string{"many"})
	job.Spec.Tasks[0].Template = raw(`{"spec":{"volumes":[{"name":"di-nodes","emptyDir":{}}],"containers":[{"name":"di-container"}]}}`)
	assignment := assignmentOf(job, 4000)
	if _, err := NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[0]); err == nil || !strings.Contains(err.Error(), "volume di-nodes") {
		t.Errorf("said is: %v", err)
	}
	few := assignmentOf(job, 40)
	if pod, err := NewBuilder(job, Settings{}).Worker(few, &few.Replicas[0]); err != nil || NodesOf(pod) == "" {
		t.Errorf("a job that needs no files: %v", err)
	}
}

func TestAPodOfASmallJobContainsTheAddressesThatItsConfigMapWould(t *testing.T) {
	job := clusterJob([]string{"chief", "worker"}, tensorFlow, torch)
	assignment := assignmentOf(job, 1, 3)
	shared, inline := NewBuilder(job, sharedNodes()), NewBuilder(job, Settings{})
	configMap := nodesOf(t, shared, assignment)
	for i := range assignment.Replicas {
		referring, err := shared.Worker(assignment, &assignment.Replicas[i])
		expect.NoError(t, err)
		pod, err := inline.Worker(assignment, &assignment.Replicas[i])
		expect.NoError(t, err)
		expect.Equal(t, pod.Name+" refers to", "", NodesOf(pod))
		expect.Equal(t, pod.Name+" was told", ToldNodes(referring, map[string]*corev1.ConfigMap{configMap.Name: configMap}), ToldNodes(pod, nil))
		container := len(pod.Spec.Containers) - 1
		expect.Equal(t, pod.Name+" sees",
			environmentBy(&referring.Spec.Containers[container], configMap), environmentBy(&pod.Spec.Containers[container], nil))
	}
}

func TestOnlyAddressesThatAreTooLongForEachPodNeedAConfigMap(t *testing.T) {
	job := clusterJob([]string{"worker"})
	builder := NewBuilder(job, Settings{})
	for replicas, want := range map[int32]bool{1: false, 8: false, 100: true} {
		needed, err := builder.NeedsNodesConfigMap(assignmentOf(job, replicas))
		if err != nil || needed != want {
			t.Errorf("%d replicas: a ConfigMap is needed: %v (%v), want %v", replicas, needed, err, want)
		}
	}
}

// sharedNodes are settings by which pods refer to a ConfigMap also in a small job.
func sharedNodes() Settings { return Settings{InlineNodes: -1} }
