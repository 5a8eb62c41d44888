// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// DescribeCluster describes the cluster spec of a job's pods, given the number of replicas of each
// task. It returns the same text for the same cluster, "" for none.
func DescribeCluster(spec *v2alpha1.DIJobSpec, counts []int32) string {
	if len(spec.ClusterSpec) == 0 {
		return ""
	}
	frameworks := make([]string, len(spec.ClusterSpec))
	for i, framework := range spec.ClusterSpec {
		frameworks[i] = string(framework)
	}
	slices.Sort(frameworks)
	elastic := -1
	if names.HasDynamicWorkers(spec) {
		elastic = names.ElasticTask(spec)
	}
	tasks := make([]string, len(counts))
	for i, count := range counts {
		tasks[i] = names.TaskName(&spec.Tasks[i])
		if i != elastic {
			tasks[i] += "=" + strconv.Itoa(int(count))
		}
	}
	return strings.Join(frameworks, ",") + ": " + strings.Join(tasks, ",")
}

// Peers are the replicas that a worker's list of peers names.
type Peers struct {
	// Counts are those of each task.
	Counts []int32
	// Total includes those of tasks that the job no longer has.
	Total int
}

// ToldReplicas returns how many replicas the job had when a worker was created, by its variables.
func ToldReplicas(pod *corev1.Pod, peers *Peers) string {
	return cmp.Or(told(pod, names.EnvDIJobReplicas), strconv.Itoa(peers.Total))
}

// ToldCluster returns the description of the cluster spec that a worker was created with, by its variables; "" if
// they are not those of the job's frameworks. A job of one pod has no variable of TensorFlow.
func ToldCluster(spec *v2alpha1.DIJobSpec, pod *corev1.Pod, peers *Peers) string {
	hasTensorFlow, hasTorch := told(pod, names.EnvTFConfig) != "", told(pod, names.EnvWorldSize) != ""
	hasMPI := told(pod, names.EnvMPIRole) != ""
	if hasTorch != slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTorch) || hasMPI != names.HasMPI(spec) ||
		peers.Total > 1 && hasTensorFlow != slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow) {
		return ""
	}
	return DescribeCluster(spec, peers.Counts)
}

// clusterEnv returns the variables that configure the frameworks of spec.clusterSpec.
func (b *Builder) clusterEnv(addresses *addresses, replica *Replica) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	for _, framework := range b.job.Spec.ClusterSpec {
		var more []corev1.EnvVar
		var err error
		switch framework {
		case v2alpha1.ClusterSpecTensorFlow:
			more, err = b.tensorFlowEnv(addresses, replica)
		case v2alpha1.ClusterSpecTorch:
			more, err = b.torchEnv(addresses, replica)
		case v2alpha1.ClusterSpecMPI:
			more, err = b.mpiEnv(addresses, replica)
		}
		if err != nil {
			return nil, err
		}
		env = append(env, more...)
	}
	return env, nil
}

// tfConfig is the value of TF_CONFIG.
type tfConfig struct {
	Cluster map[string]any `json:"cluster"`
	Task    tfTask         `json:"task"`
	// Environment is for TensorFlow 1.3 and earlier.
	Environment string `json:"environment,omitempty"`
}

type tfTask struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

// tfCluster is the cluster of TF_CONFIG: the addresses of each task's replicas.
type tfCluster struct {
	// addresses are the addresses of each task's replicas, by the index of the task in the spec.
	addresses map[int][]string
	// places are the indexes of pods in these lists, by pod.
	places map[string]int
	// cluster is the cluster that all pods have in common. Instead of a task's addresses it
	// contains a reference to the variable with the encoded addresses.
	cluster map[string]any
	// variables are the names of these variables, in order.
	variables []string
}

// tensorFlowEnv returns TF_CONFIG, in the format of Kubeflow's training operator, after the
// variables that the kubelet expands in it. A job of one pod trains alone and gets none.
func (b *Builder) tensorFlowEnv(addresses *addresses, replica *Replica) ([]corev1.EnvVar, error) {
	cluster := addresses.tensorflow
	if cluster == nil {
		return nil, nil
	}
	config := tfConfig{
		Cluster: cluster.cluster, Environment: "cloud",
		Task: tfTask{Type: names.TaskName(&b.job.Spec.Tasks[replica.Task]), Index: cluster.places[replica.Pod]},
	}
	if names.HasDynamicWorkers(&b.job.Spec) {
		config.Environment = ""
		if config.Task.Type == names.DynamicTask {
			config.Task.Index = int(replica.Index)
			config.Cluster = withOwn(cluster, replica)
		}
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", names.EnvTFConfig, err)
	}
	text, length := string(encoded), len(encoded)
	env := make([]corev1.EnvVar, 0, len(cluster.variables)+1)
	for _, name := range cluster.variables {
		// The reference is not JSON, so it is encoded as a string.
		text = strings.Replace(text, `"`+reference(name)+`"`, reference(name), 1)
		length += len(addresses.data[name]) - len(reference(name)) - len(`""`)
		env = append(env, addresses.variable(name))
	}
	if size := variableSize(names.EnvTFConfig, length); size > MaxVariable {
		return nil, fmt.Errorf("spec.clusterSpec: TensorFlow reads the addresses of all %d replicas in %s, which takes %d bytes, and Linux starts "+
			"no process with more than %d in one variable: shorten the names of job, tasks and namespace, or have fewer replicas",
			len(addresses.assignment.Replicas), names.EnvTFConfig, size, MaxVariable)
	}
	return append(env, variable(names.EnvTFConfig, text)), nil
}

// reference returns a reference to a variable, for use in the value of another.
func reference(name string) string {
	return "$(" + name + ")"
}

// withOwn returns the cluster for a dynamic worker: the other tasks' replicas and the worker
// itself.
func withOwn(cluster *tfCluster, replica *Replica) map[string]any {
	own := maps.Clone(cluster.cluster)
	own[names.DynamicTask] = map[int32]string{replica.Index: cluster.addresses[replica.Task][cluster.places[replica.Pod]]}
	return own
}

// describeTensorFlow adds the part of TF_CONFIG that all pods have in common.
func (b *Builder) describeTensorFlow(described *addresses) error {
	assignment := described.assignment
	if len(assignment.Replicas) == 1 || !slices.Contains(b.job.Spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow) {
		return nil
	}
	cluster, err := b.tfClusterOf(assignment)
	if err != nil {
		return err
	}
	isDynamic := names.HasDynamicWorkers(&b.job.Spec)
	for _, task := range slices.Sorted(maps.Keys(cluster.addresses)) {
		name := names.TaskName(&b.job.Spec.Tasks[task])
		if isDynamic && name == names.DynamicTask {
			cluster.cluster[name] = map[int32]string{}
			continue
		}
		encoded, err := json.Marshal(cluster.addresses[task])
		if err != nil {
			return fmt.Errorf("encoding the addresses of task %s: %w", name, err)
		}
		key := names.TaskClusterVariable(name)
		described.data[key] = string(encoded)
		cluster.cluster[name] = reference(key)
		cluster.variables = append(cluster.variables, key)
	}
	described.tensorflow = cluster
	return nil
}

func (b *Builder) tfClusterOf(assignment *Assignment) (*tfCluster, error) {
	cluster := &tfCluster{addresses: map[int][]string{}, places: make(map[string]int, len(assignment.Replicas)), cluster: map[string]any{}}
	ports := map[int]int32{}
	subdomain := b.subdomain(assignment)
	for i := range assignment.Replicas {
		replica := &assignment.Replicas[i]
		if _, known := ports[replica.Task]; !known {
			template, err := b.task(replica.Task)
			if err != nil {
				return nil, err
			}
			ports[replica.Task] = names.NamedPort(&template.Spec, names.Port, names.DefaultWorkerPort)
		}
		cluster.places[replica.Pod] = len(cluster.addresses[replica.Task])
		cluster.addresses[replica.Task] = append(cluster.addresses[replica.Task],
			names.HostFQDN(replica.Pod, subdomain, b.job.Namespace, b.settings.ServiceDomain)+":"+strconv.Itoa(int(ports[replica.Task])))
	}
	return cluster, nil
}

// torchEnv returns the variables of torch.distributed and torchrun. It renumbers ranks without the
// gaps that the job's ranks may have.
func (b *Builder) torchEnv(addresses *addresses, replica *Replica) ([]corev1.EnvVar, error) {
	assignment := addresses.assignment
	if addresses.ranks == nil {
		for i := range assignment.Replicas {
			addresses.ranks = append(addresses.ranks, assignment.Replicas[i].Rank)
		}
		slices.Sort(addresses.ranks)
	}
	first := slices.IndexFunc(assignment.Replicas, func(s Replica) bool { return s.Rank == addresses.ranks[0] })
	template, err := b.task(assignment.Replicas[first].Task)
	if err != nil {
		return nil, err
	}
	rank, _ := slices.BinarySearch(addresses.ranks, replica.Rank)
	world := int32(len(addresses.ranks))
	master := names.HostFQDN(assignment.Replicas[first].Pod, b.subdomain(assignment), b.job.Namespace, b.settings.ServiceDomain)
	port := names.NamedPort(&template.Spec, names.MasterPort, names.DefaultMasterPort)
	return []corev1.EnvVar{
		variable(names.EnvMasterAddr, master),
		number(names.EnvMasterPort, port),
		number(names.EnvWorldSize, world),
		number(names.EnvRank, int32(rank)),
		number(names.EnvPETNodes, world),
		number(names.EnvPETNodeRank, int32(rank)),
		variable(names.EnvPETMasterAddr, master),
		number(names.EnvPETMasterPort, port),
	}, nil
}
