// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const (
	trainerVersion = "trainer.kubeflow.org/v1alpha1"
	// trainer is the name of kubeflow's controller in managedBy.
	trainer = "trainer.kubeflow.org/trainjob-controller"
	// trainerPort is the port of the master in kubeflow's runtimes of PyTorch.
	trainerPort = 29500
	// trainerUser and trainerKeys are the user of kubeflow's runtimes of MPI, and the folder of its keys.
	trainerUser, trainerKeys = 1000, "/home/mpiuser/.ssh"
)

// trainJob is a TrainJob of kubeflow's trainer during its import. What its pods are is in a runtime. The manifest has only
// its name.
type trainJob struct {
	*manifest
	spec v2alpha1.DIJobSpec
	// runtime is the name of the runtime.
	runtime string
	nodes   int32
}

// importTrainJob imports a TrainJob whose runtime is one that kubeflow ships: those of PyTorch and MPI. Of another
// runtime's pods it knows nothing.
func importTrainJob(m *manifest) any {
	metadata := m.takeMetadata()
	j := &trainJob{manifest: m}
	j.dropStatus()
	for _, step := range []func(){j.takeRuntime, j.takeTrainer, j.takeRest} {
		if step(); j.err != nil {
			return nil
		}
	}
	j.leaveToQueue(metadata, &j.spec)
	sortMoves(j.result.Moves)
	return newJob(metadata, j.spec)
}

// takeRuntime imports what is known of the runtime.
func (j *trainJob) takeRuntime() {
	at := Path{"spec", "runtimeRef"}
	j.runtime = ptr.Deref(takeAs[string](j.manifest, at.Child("name")), "")
	for _, field := range []string{"apiGroup", "kind"} {
		if value := takeAs[string](j.manifest, at.Child(field)); value != nil {
			j.note(at.Child(field), *value, "left out: a DIJob has its pods in its spec, and refers to no runtime", "")
		}
	}
	switch j.runtime {
	case "":
		j.failf("%s: is not set, a TrainJob needs a runtime", at.Child("name"))
	case "torch-distributed":
		j.spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}
		j.note(at.Child("name"), j.runtime, "became spec.clusterSpec: [Torch], with the port and the variables of kubeflow's runtime of that name",
			"compare it with the runtime of your installation")
	case "deepspeed-distributed", "mlx-distributed":
		j.spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}
		j.spec.MPI = &v2alpha1.MPI{SSHAuthMountPath: trainerKeys, RunLauncherAsWorker: true}
		j.note(at.Child("name"), j.runtime, "became spec.clusterSpec: [MPI], with the user and the daemon of ssh of kubeflow's runtime of that name",
			"compare it with the runtime of your installation")
	default:
		j.lost(at.Child("name"), j.runtime, "what its pods are is in that runtime, which is not in the manifest: of it nothing was imported",
			"add what it has to spec.tasks, and a clusterSpec")
	}
}

// takeTrainer imports the tasks.
func (j *trainJob) takeTrainer() {
	at := Path{"spec", "trainer"}
	j.nodes = ptr.Deref(takeAs[int32](j.manifest, at.Child("numNodes")), 1)
	j.note(at.Child("numNodes"), j.nodes, "became the number of replicas", "")
	processes := takeAs[intstr.IntOrString](j.manifest, at.Child("numProcPerNode"))
	container := map[string]any{"name": mainContainer}
	for _, field := range []struct{ from, to string }{{"image", "image"}, {"command", "command"}, {"args", "args"}, {"env", "env"}, {"resourcesPerNode", "resources"}} {
		if value := j.take(at.Child(field.from)); value != nil {
			container[field.to] = value
			j.moved(at.Child(field.from), Path{"spec", "tasks", "0", "template", "spec", "containers", "0", field.to})
		}
	}
	if container["image"] == nil {
		j.lost(at.Child("image"), nil, "is not set: it is the runtime's, which is not in the manifest", "write the image of runtime "+j.runtime+" into each task")
	}
	if j.spec.MPI != nil {
		j.addMPI(container, processes)
		return
	}
	if len(j.spec.ClusterSpec) > 0 {
		j.addTorch(container, processes)
	} else if processes != nil {
		j.lost(at.Child("numProcPerNode"), processes.String(), "what it means is in the runtime", "")
	}
	j.addTask("node", j.nodes, map[string]any{"spec": map[string]any{"containers": []any{container}}})
}

// addTorch adds the port and the variable of kubeflow's runtime of PyTorch.
func (j *trainJob) addTorch(container map[string]any, processes *intstr.IntOrString) {
	at, count := Path{"spec", "trainer", "numProcPerNode"}, "auto"
	if processes != nil {
		count = processes.String()
		j.note(at, count, "became PET_NPROC_PER_NODE in the environment", "")
	} else {
		j.note(at, nil, "is not set: became PET_NPROC_PER_NODE auto in the environment, as in the runtime", "")
	}
	listed, isList := container["env"].([]any)
	if !isList && container["env"] != nil {
		j.failf("%s: is no list", Path{"spec", "trainer", "env"})
	}
	container["env"] = append(listed, map[string]any{"name": "PET_NPROC_PER_NODE", "value": count})
	container["ports"] = []any{map[string]any{"name": masterPort, "containerPort": trainerPort}}
}

// addMPI adds a launcher, which is the first node, and the other nodes.
func (j *trainJob) addMPI(container map[string]any, processes *intstr.IntOrString) {
	at := Path{"spec", "trainer", "numProcPerNode"}
	slots := int32(1)
	if processes != nil {
		number, err := strconv.ParseInt(processes.String(), 10, 32)
		if err != nil {
			j.failf("%s: %s is no whole number that fits", at, processes.String())
		}
		slots = int32(number)
		j.note(at, processes.String(), "became spec.mpi.slotsPerWorker", "")
	}
	j.spec.MPI.SlotsPerWorker = &slots
	user := map[string]any{"runAsUser": trainerUser, "runAsGroup": trainerUser}
	template := func(container map[string]any) map[string]any {
		container["securityContext"] = user
		return map[string]any{"spec": map[string]any{"securityContext": map[string]any{"fsGroup": trainerUser}, "containers": []any{container}}}
	}
	j.addTask(launcher, 1, template(container))
	if j.nodes < 2 {
		return
	}
	node := map[string]any{"name": mainContainer, "command": []any{"/usr/sbin/sshd"}, "args": []any{"-De", "-f", "/home/mpiuser/.sshd_config"}}
	for _, field := range []string{"image", "resources"} {
		if container[field] != nil {
			node[field] = container[field]
		}
	}
	j.addTask("node", j.nodes-1, template(node))
	j.note(Path{"spec", "trainer"}, nil, fmt.Sprintf("became a task launcher, which is the first node, and %d replicas of a task node", j.nodes-1), "")
}

func (j *trainJob) addTask(name string, replicas int32, template map[string]any) {
	j.spec.Tasks = append(j.spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name, Replicas: &replicas, Template: j.rawObject(template)})
}

// takeRest imports the fields that a DIJob has in its spec.
func (j *trainJob) takeRest() {
	at := Path{"spec", "suspend"}
	j.spec.Suspend = takeTo[bool](j.manifest, at, at)
	deadline := Path{"spec", "activeDeadlineSeconds"}
	j.spec.ActiveDeadlineSeconds = takeTo[int64](j.manifest, deadline, deadline)
	manager := Path{"spec", "managedBy"}
	switch by := takeAs[string](j.manifest, manager); {
	case by == nil:
	case *by == "" || *by == trainer:
		j.note(manager, *by, "left out: DI Orchestrator runs the job now", "")
	default:
		j.spec.ManagedBy = by
	}
	j.note(Path{"spec"}, nil, "its Job recreated a failed pod: a failure restarts all replicas now, within backoffLimit, 3 by default", "set spec.failurePolicy and spec.backoffLimit")
}
