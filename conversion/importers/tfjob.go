// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const kubeflowVersion = "kubeflow.org/v1"

// tfReplica is one replica type of a TFJob as the task that it becomes.
type tfReplica struct {
	task          v2alpha1.Task
	at            Path
	restartPolicy string
	// says is what the manifest says of it, nil for nothing.
	says any
}

// tfJob is a TFJob while it becomes a DIJob.
type tfJob struct {
	*manifest
	spec     v2alpha1.DIJobSpec
	replicas []tfReplica
}

// importTFJob imports a TFJob of kubeflow's training operator.
func importTFJob(m *manifest) error {
	metadata, err := m.takeMetadata()
	if err != nil {
		return err
	}
	m.dropStatus()
	j := &tfJob{manifest: m}
	for _, step := range []func() error{j.takeReplicas, j.takeClusterSpec, j.takeRunPolicy, j.takeSuccessPolicy, j.takeRestartPolicies, j.takeDynamicWorker} {
		if err := step(); err != nil {
			return err
		}
	}
	sortMoves(m.result.Moves)
	return m.finish(newJob(metadata, j.spec))
}

// taskOrder is the order of the tasks, and so of ranks: who leads goes first.
func taskOrder(name string) int {
	order := []string{"chief", "master", "worker", "ps", "evaluator"}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

func (j *tfJob) takeReplicas() error {
	at := Path{"spec", "tfReplicaSpecs"}
	types := j.members(at)
	slices.SortStableFunc(types, func(a, b string) int {
		return taskOrder(strings.ToLower(a)) - taskOrder(strings.ToLower(b))
	})
	for _, replicaType := range types {
		replica, err := j.takeReplica(at.Child(replicaType))
		if err != nil {
			return err
		}
		if other := j.replica(replica.task.Name); other != nil {
			return fmt.Errorf("%s: is the same replica type as %s, whose name differs in letter case only", replica.at, other.at)
		}
		j.replicas = append(j.replicas, *replica)
		j.spec.Tasks = append(j.spec.Tasks, replica.task)
	}
	if len(types) == 0 {
		return fmt.Errorf("%s: names no replica type, a job needs something to run", at)
	}
	return nil
}

func (j *tfJob) takeReplica(at Path) (*tfReplica, error) {
	to := Path{"spec", "tasks", strconv.Itoa(len(j.spec.Tasks))}
	j.moved(at, to)
	name := strings.ToLower(at[len(at)-1])
	replica := &tfReplica{at: at, task: v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name}}
	count, err := takeAs[int32](j.manifest, at.Child("replicas"))
	if err != nil {
		return nil, err
	}
	replica.task.Replicas = count
	policy, err := takeAs[string](j.manifest, at.Child("restartPolicy"))
	if err != nil {
		return nil, err
	}
	replica.restartPolicy = "Never"
	if policy != nil && *policy != "" {
		replica.restartPolicy, replica.says = *policy, *policy
	}
	template, err := j.takeObject(at.Child("template"))
	if err != nil {
		return nil, err
	}
	j.adaptTemplate(template, at.Child("template"))
	replica.task.Template, err = rawObject(template)
	return replica, err
}

// adaptTemplate makes the operator find the main container and its port.
func (j *tfJob) adaptTemplate(template map[string]any, at Path) {
	renaming{container: "tensorflow", port: "tfjob-port"}.apply(j.manifest, template, at)
	listed := false
	for _, container := range containers(template) {
		for _, port := range ports(container) {
			listed = listed || port["name"] == mainPort
		}
	}
	if !listed {
		j.noteAgain(at, nil, "lists no tfjob-port: pods get the port di-port 22270 where kubeflow's got 2222",
			"programs that take their port from TF_CONFIG need no change")
	}
}

// takeClusterSpec asks for TF_CONFIG, which kubeflow gives to all but a job of
// one pod: TensorFlow trains alone without it.
func (j *tfJob) takeClusterSpec() error {
	pods := int64(0)
	for i := range j.replicas {
		pods += int64(ptr.Deref(j.replicas[i].task.Replicas, 1))
	}
	if pods == 1 {
		j.note(Path{"spec", "tfReplicaSpecs"}, nil, "is one pod, which gets no TF_CONFIG, as in kubeflow", "")
		return nil
	}
	j.spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}
	return nil
}

func (j *tfJob) replica(name string) *tfReplica {
	for i := range j.replicas {
		if j.replicas[i].task.Name == name {
			return &j.replicas[i]
		}
	}
	return nil
}

// takeSuccessPolicy says which tasks decide. For kubeflow the chief does, or
// else worker 0; AllWorkers asks for every worker where there is no chief.
func (j *tfJob) takeSuccessPolicy() error {
	at := Path{"spec", "successPolicy"}
	policy, err := takeAs[string](j.manifest, at)
	if err != nil {
		return err
	}
	allWorkers := policy != nil && *policy == "AllWorkers"
	if policy != nil && *policy != "" && !allWorkers {
		return fmt.Errorf(`%s: %q is neither AllWorkers nor ""`, at, *policy)
	}
	if policy != nil && *policy == "" {
		j.note(at, "", "means kubeflow's default, which spec.successPolicy now says", "")
	}
	worker := j.replica("worker")
	switch leader := j.leader(); {
	case leader != nil:
		j.decides(leader.task.Name)
		j.note(leader.at, nil, "decides about the job: spec.successPolicy.targetTasks names its task", "")
		if allWorkers {
			j.note(at, "AllWorkers", "has no effect beside a chief or master, in kubeflow either", "")
		}
	case worker == nil:
		j.note(at, nil, "no chief, master or worker, without which kubeflow ends no job: this one succeeds when all its tasks have", "name those that decide in spec.successPolicy.targetTasks")
	default:
		j.decides("worker")
		if allWorkers {
			j.note(at, "AllWorkers", "became spec.successPolicy.targetTasks: [worker]", "")
		} else if count := worker.task.Replicas; count != nil && *count > 1 {
			j.lost(worker.at, nil, "worker 0 alone decided about the job; all workers have to succeed now",
				"let the other workers end as well, or make worker 0 a Chief")
		}
	}
	return nil
}

// leader returns the replica type that decides about a TFJob, nil if there is none.
func (j *tfJob) leader() *tfReplica {
	if chief := j.replica("chief"); chief != nil {
		return chief
	}
	return j.replica("master")
}

func (j *tfJob) decides(task string) {
	j.spec.SuccessPolicy = &v2alpha1.SuccessPolicy{Operator: v2alpha1.SuccessPolicyAll, TargetTasks: []string{task}}
}

func (j *tfJob) takeDynamicWorker() error {
	at := Path{"spec", "enableDynamicWorker"}
	dynamic, err := takeAs[bool](j.manifest, at)
	if err != nil || dynamic == nil {
		return err
	}
	if !*dynamic || j.replica("worker") == nil {
		j.note(at, *dynamic, "left out: nothing follows from it", "")
		return nil
	}
	j.spec.Elastic = &v2alpha1.Elastic{Task: "worker"}
	j.lost(at, true, "became spec.elastic of the task worker, by which workers may be added and removed; "+
		"TF_CONFIG lists all workers nevertheless, and a failed worker is treated by spec.failurePolicy", "see spec.elastic and spec.failurePolicy")
	return nil
}
