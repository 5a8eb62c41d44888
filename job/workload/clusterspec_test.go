// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	tensorFlow = v2alpha1.ClusterSpecTensorFlow
	torch      = v2alpha1.ClusterSpecTorch
)

// clusterJob returns a job of tasks of type none. The first task names a port for masters; each
// other one has its own port.
func clusterJob(tasks []string, frameworks ...v2alpha1.ClusterSpec) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space"}, Spec: v2alpha1.DIJobSpec{ClusterSpec: frameworks},
	}
	for i, name := range tasks {
		port := fmt.Sprintf(`{"name":"di-port","containerPort":%d}`, 2222+i)
		if i == 0 {
			port = `{"name":"master-port","containerPort":23456}`
		}
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{
			Type: v2alpha1.TaskTypeNone, Name: name,
			Template: raw(`{"spec":{"containers":[{"name":"sidecar"},{"name":"di-container","ports":[` + port + `],"env":[{"name":"RANK","value":"own"}]}]}}`),
		})
	}
	return job
}

// assignmentOf assigns ranks to the replicas of each task, in the order of the spec.
func assignmentOf(job *v2alpha1.DIJob, counts ...int32) *Assignment {
	assignment := &Assignment{}
	for task, count := range counts {
		for index := range count {
			pod := fmt.Sprintf("job-%s-%d", job.Spec.Tasks[task].Name, index)
			assignment.Replicas = append(assignment.Replicas, Replica{Task: task, Index: index, Rank: int32(len(assignment.Nodes)), Pod: pod})
			assignment.Nodes = append(assignment.Nodes, pod)
		}
	}
	return assignment
}

// toldOf returns a replica's pod and its environment, which is the same in each container.
func toldOf(t *testing.T, builder *Builder, assignment *Assignment, replica int) (map[string]string, *corev1.Pod) {
	t.Helper()
	pod, err := builder.Worker(assignment, &assignment.Replicas[replica])
	expect.NoError(t, err)
	configMap := nodesOf(t, builder, assignment)
	told := environmentBy(&pod.Spec.Containers[0], configMap)
	main := environmentBy(&pod.Spec.Containers[1], configMap)
	if own, has := main["RANK"]; own == "own" {
		delete(main, "RANK")
	} else if !has {
		t.Error("the template's own variable is gone")
	}
	if diff := cmp.Diff(told, main); diff != "" {
		t.Errorf("the containers are told differently (-first +main):\n%s", diff)
	}
	return told, pod
}

func TestWhatTensorFlowIsTold(t *testing.T) {
	const domain = ".di-job.space.svc.other"
	dynamic := func(job *v2alpha1.DIJob) {
		job.Spec.Elastic = &v2alpha1.Elastic{Task: "worker", OnResize: v2alpha1.OnResizeContinue}
	}
	chief := `"chief":["job-chief-0` + domain + `:22270"]`
	ps := `"ps":["job-ps-0` + domain + `:2224","job-ps-1` + domain + `:2224"]`
	workers := `"worker":["job-worker-0` + domain + `:2223","job-worker-1` + domain + `:2223"]`
	for name, tc := range map[string]struct {
		edit    func(*v2alpha1.DIJob)
		counts  []int32
		replica int
		want    string
	}{
		"the chief": {nil, []int32{1, 2, 2}, 0, `{"cluster":{` + chief + `,` + ps + `,` + workers + `},"task":{"type":"chief","index":0},"environment":"cloud"}`},
		"a worker":  {nil, []int32{1, 2, 2}, 2, `{"cluster":{` + chief + `,` + ps + `,` + workers + `},"task":{"type":"worker","index":1},"environment":"cloud"}`},
		"a parameter server": {nil, []int32{1, 2, 2}, 4,
			`{"cluster":{` + chief + `,` + ps + `,` + workers + `},"task":{"type":"ps","index":1},"environment":"cloud"}`},
		"a task without replicas": {nil, []int32{1, 0, 2}, 0, `{"cluster":{` + chief + `,` + ps + `},"task":{"type":"chief","index":0},"environment":"cloud"}`},
		"an evaluator, which is one of the cluster as for kubeflow": {func(job *v2alpha1.DIJob) { job.Spec.Tasks[2].Name = "evaluator" }, []int32{1, 0, 1}, 1,
			`{"cluster":{` + chief + `,"evaluator":["job-evaluator-0` + domain + `:2224"]},"task":{"type":"evaluator","index":0},"environment":"cloud"}`},
		"a job of one pod": {nil, []int32{1, 0, 0}, 0, ""},
		"a dynamic worker": {dynamic, []int32{1, 2, 2}, 2,
			`{"cluster":{` + chief + `,` + ps + `,"worker":{"1":"job-worker-1` + domain + `:2223"}},"task":{"type":"worker","index":1}}`},
		"a parameter server of dynamic workers": {dynamic, []int32{1, 2, 2}, 3,
			`{"cluster":{` + chief + `,` + ps + `,"worker":{}},"task":{"type":"ps","index":0}}`},
	} {
		t.Run(name, func(t *testing.T) {
			job := clusterJob([]string{"chief", "worker", "ps"}, tensorFlow)
			if tc.edit != nil {
				tc.edit(job)
			}
			assignment := assignmentOf(job, tc.counts...)
			told, _ := toldOf(t, NewBuilder(job, Settings{ServiceDomain: "svc.other"}), assignment, tc.replica)
			expect.Equal(t, "TF_CONFIG", tc.want, told["TF_CONFIG"])
		})
	}
}

func TestWhatTorchIsTold(t *testing.T) {
	job := clusterJob([]string{"master", "worker"}, torch)
	assignment := assignmentOf(job, 1, 3)
	builder := NewBuilder(job, Settings{})
	for replica := range assignment.Replicas {
		told, pod := toldOf(t, builder, assignment, replica)
		rank := strconv.Itoa(replica)
		want := map[string]string{
			"MASTER_ADDR": "job-master-0.di-job.space.svc.cluster.local", "MASTER_PORT": "23456", "WORLD_SIZE": "4", "RANK": rank,
			"PET_MASTER_ADDR": "job-master-0.di-job.space.svc.cluster.local", "PET_MASTER_PORT": "23456", "PET_NNODES": "4", "PET_NODE_RANK": rank,
		}
		for key, value := range want {
			expect.Equal(t, fmt.Sprintf("rank %d: %s", replica, key), value, told[key])
		}
		expect.Equal(t, fmt.Sprintf("rank %d is told of TensorFlow", replica), "", told["TF_CONFIG"])
		if got, want := pod.Annotations["diengine/cluster"], "Torch: master=1,worker=3"; got != want {
			t.Errorf("the annotation is %q, want %q", got, want)
		}
	}
}

func TestAMasterWithoutAPortOfThatNameHasTheDefault(t *testing.T) {
	job := clusterJob([]string{"unused", "worker"}, torch)
	assignment := assignmentOf(job, 0, 2)
	told, _ := toldOf(t, NewBuilder(job, Settings{}), assignment, 1)
	if told["MASTER_PORT"] != "10314" || told["MASTER_ADDR"] != "job-worker-0.di-job.space.svc.cluster.local" {
		t.Errorf("the master is %s:%s", told["MASTER_ADDR"], told["MASTER_PORT"])
	}
}

func TestAJobWithoutFrameworksIsToldOfNoCluster(t *testing.T) {
	job := clusterJob([]string{"master", "worker"})
	job.Spec.Tasks[0].Template = raw(plain)
	assignment := assignmentOf(job, 1, 1)
	pod, err := NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[0])
	expect.NoError(t, err)
	for name := range environment(&pod.Spec.Containers[0]) {
		if !strings.HasPrefix(name, "DI_") {
			t.Errorf("it is told %s", name)
		}
	}
	if got, has := pod.Annotations["diengine/cluster"]; has {
		t.Errorf("the annotation is %q", got)
	}
}

func TestATemplateThatCannotBeReadIsNamed(t *testing.T) {
	for _, framework := range []v2alpha1.ClusterSpec{tensorFlow, torch} {
		job := clusterJob([]string{"master", "worker"}, framework)
		job.Spec.Tasks[0].Template = raw(`{"spec":{"containers":7}}`)
		assignment := assignmentOf(job, 1, 1)
		if _, err := NewBuilder(job, Settings{}).Worker(assignment, &assignment.Replicas[1]); err == nil || !strings.Contains(err.Error(), "spec.tasks[0].template") {
			t.Errorf("%s: the error is %v", framework, err)
		}
	}
}

// TestRanksAreDenseAndPlacesUniqueWhateverTheRoster covers job ranks with gaps and in any order.
func TestRanksAreDenseAndPlacesUniqueWhateverTheRoster(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		job := clusterJob([]string{"chief", "worker", "ps"}, tensorFlow, torch)
		assignment := assignmentOf(job, random.Int32N(2), 1+random.Int32N(5), random.Int32N(4))
		ranks := random.Perm(len(assignment.Replicas) + random.IntN(4))
		assignment.Nodes = make([]string, len(ranks))
		for i := range assignment.Replicas {
			assignment.Replicas[i].Rank = int32(ranks[i])
			assignment.Nodes[ranks[i]] = assignment.Replicas[i].Pod
		}
		agreeOnTheCluster(t, job, assignment)
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, assignment)
		}
	}
}

// agreeOnTheCluster checks that all pods of an assignment have the same cluster spec, and each its
// own position in it.
func agreeOnTheCluster(t *testing.T, job *v2alpha1.DIJob, assignment *Assignment) {
	t.Helper()
	size := len(assignment.Replicas)
	taken := make([]bool, size)
	master, cluster := "", ""
	builder := NewBuilder(job, Settings{})
	for i := range assignment.Replicas {
		told, pod := toldOf(t, builder, assignment, i)
		rank, err := strconv.Atoi(told["RANK"])
		if err != nil || rank < 0 || rank >= size || taken[rank] || told["WORLD_SIZE"] != strconv.Itoa(size) {
			t.Fatalf("%s has rank %q of %q, of %d pods", pod.Name, told["RANK"], told["WORLD_SIZE"], size)
		}
		taken[rank] = true
		if rank == 0 && !strings.HasPrefix(told["MASTER_ADDR"], pod.Name+".") {
			t.Errorf("rank 0 is %s, and the master is %s", pod.Name, told["MASTER_ADDR"])
		}
		if size > 1 {
			cluster = sameCluster(t, cluster, told["TF_CONFIG"], pod.Name)
		}
		if master == "" {
			master = told["MASTER_ADDR"]
		}
		expect.Equal(t, pod.Name+" has the address of master", master, told["MASTER_ADDR"])
	}
}

// sameCluster checks that a pod's cluster spec equals that of earlier pods, if there were any, and
// that it lists the pod at its position. It returns the cluster spec.
func sameCluster(t *testing.T, before, text, pod string) string {
	t.Helper()
	var config struct {
		Cluster map[string][]string
		Task    struct {
			Type  string
			Index int
		}
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	cluster := fmt.Sprint(config.Cluster)
	if before != "" && cluster != before {
		t.Errorf("%s is told of %s, others of %s", pod, cluster, before)
	}
	own := config.Cluster[config.Task.Type]
	if config.Task.Index >= len(own) || !strings.HasPrefix(own[config.Task.Index], pod+".") {
		t.Errorf("%s is not at its place %+v of %v", pod, config.Task, own)
	}
	return cluster
}
