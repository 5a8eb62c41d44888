// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// DescribeCluster says which cluster the pods of a job are told of, which has so
// many replicas of each task: the same text for the same cluster, "" for none.
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

// clusterEnv returns the variables by which the frameworks of spec.clusterSpec
// find their cluster.
func (b *Builder) clusterEnv(roster *Roster, seat *Seat) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	for _, framework := range b.job.Spec.ClusterSpec {
		var more []corev1.EnvVar
		var err error
		switch framework {
		case v2alpha1.ClusterSpecTensorFlow:
			more, err = b.tensorFlowEnv(roster, seat)
		case v2alpha1.ClusterSpecTorch:
			more, err = b.torchEnv(roster, seat)
		}
		if err != nil {
			return nil, err
		}
		env = append(env, more...)
	}
	return env, nil
}

// tfConfig is what TensorFlow reads in TF_CONFIG.
type tfConfig struct {
	Cluster map[string]any `json:"cluster"`
	Task    tfTask         `json:"task"`
	// Environment is read by TensorFlow 1.3 and before.
	Environment string `json:"environment,omitempty"`
}

type tfTask struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

// tfCluster is the cluster of TF_CONFIG: the addresses of each task's replicas.
type tfCluster struct {
	// addresses are those of each task, by its index in the spec and theirs.
	addresses map[int][]string
	// places are where in them each pod is.
	places map[string]int
	// cluster is what all pods are told, encoded.
	cluster map[string]any
}

// tensorFlowEnv returns TF_CONFIG, as kubeflow's training operator writes it. A
// job of one pod trains alone, and gets none.
func (b *Builder) tensorFlowEnv(roster *Roster, seat *Seat) ([]corev1.EnvVar, error) {
	if len(roster.Seats) == 1 {
		return nil, nil
	}
	addresses := b.described(roster)
	if addresses.tensorflow == nil {
		cluster, err := b.tfClusterOf(roster)
		if err != nil {
			return nil, err
		}
		addresses.tensorflow = cluster
	}
	cluster := addresses.tensorflow
	config := tfConfig{
		Cluster: cluster.cluster, Environment: "cloud",
		Task: tfTask{Type: names.TaskName(&b.job.Spec.Tasks[seat.Task]), Index: cluster.places[seat.Pod]},
	}
	if names.HasDynamicWorkers(&b.job.Spec) {
		config.Environment = ""
		if config.Task.Type == names.DynamicTask {
			config.Task.Index = int(seat.Index)
			config.Cluster = withOwn(cluster, seat)
		}
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", names.EnvTFConfig, err)
	}
	return []corev1.EnvVar{variable(names.EnvTFConfig, string(encoded))}, nil
}

// withOwn returns the cluster as a dynamic worker is told it: the other tasks'
// replicas, and itself.
func withOwn(cluster *tfCluster, seat *Seat) map[string]any {
	own := map[string]any{}
	for task, replicas := range cluster.cluster {
		own[task] = replicas
	}
	own[names.DynamicTask] = map[int32]string{seat.Index: cluster.addresses[seat.Task][cluster.places[seat.Pod]]}
	return own
}

func (b *Builder) tfClusterOf(roster *Roster) (*tfCluster, error) {
	cluster := &tfCluster{addresses: map[int][]string{}, places: make(map[string]int, len(roster.Seats)), cluster: map[string]any{}}
	ports := map[int]int32{}
	subdomain := b.subdomain(roster)
	for i := range roster.Seats {
		seat := &roster.Seats[i]
		if _, known := ports[seat.Task]; !known {
			template, err := b.task(seat.Task)
			if err != nil {
				return nil, err
			}
			ports[seat.Task] = names.NamedPort(&template.Spec, names.Port, names.DefaultWorkerPort)
		}
		cluster.places[seat.Pod] = len(cluster.addresses[seat.Task])
		cluster.addresses[seat.Task] = append(cluster.addresses[seat.Task],
			names.HostFQDN(seat.Pod, subdomain, b.job.Namespace, b.settings.ServiceDomain)+":"+strconv.Itoa(int(ports[seat.Task])))
	}
	isDynamic := names.HasDynamicWorkers(&b.job.Spec)
	for task, addresses := range cluster.addresses {
		name := names.TaskName(&b.job.Spec.Tasks[task])
		if isDynamic && name == names.DynamicTask {
			cluster.cluster[name] = map[int32]string{}
			continue
		}
		// All pods are told the same, so it is encoded once.
		encoded, err := json.Marshal(addresses)
		if err != nil {
			return nil, fmt.Errorf("encoding the addresses of task %s: %w", name, err)
		}
		cluster.cluster[name] = json.RawMessage(encoded)
	}
	return cluster, nil
}

// torchEnv returns what torch.distributed reads, and torchrun. Ranks are counted
// anew, without the gaps that those of the job may have.
func (b *Builder) torchEnv(roster *Roster, seat *Seat) ([]corev1.EnvVar, error) {
	addresses := b.described(roster)
	if addresses.ranks == nil {
		for i := range roster.Seats {
			addresses.ranks = append(addresses.ranks, roster.Seats[i].Rank)
		}
		slices.Sort(addresses.ranks)
	}
	first := slices.IndexFunc(roster.Seats, func(s Seat) bool { return s.Rank == addresses.ranks[0] })
	template, err := b.task(roster.Seats[first].Task)
	if err != nil {
		return nil, err
	}
	rank, _ := slices.BinarySearch(addresses.ranks, seat.Rank)
	world := int32(len(addresses.ranks))
	master := names.HostFQDN(roster.Seats[first].Pod, b.subdomain(roster), b.job.Namespace, b.settings.ServiceDomain)
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
