// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const kubeflowVersion = "kubeflow.org/v1"

// kubeflowReplica is one replica type of a job of kubeflow as the task that it
// becomes.
type kubeflowReplica struct {
	task          v2alpha1.Task
	at            Path
	restartPolicy string
	// says is what the manifest says of it, nil for nothing.
	says any
}

// kubeflowJob is a job of kubeflow's training operator while it becomes a DIJob.
type kubeflowJob struct {
	*manifest
	// restartPolicy is what replicas have that say nothing.
	restartPolicy string
	// adapt makes a template of a replica type one of the task.
	adapt    func(template map[string]any, at Path)
	spec     v2alpha1.DIJobSpec
	replicas []kubeflowReplica
}

// follow takes the steps of an import, and ends it.
func (j *kubeflowJob) follow(metadata map[string]any, steps ...func() error) error {
	j.dropStatus()
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	sortMoves(j.result.Moves)
	return j.finish(newJob(metadata, j.spec))
}

// taskOrder is the order of the tasks, and so of ranks: who leads goes first.
func taskOrder(name string) int {
	order := []string{"chief", "master", "worker", "ps", "evaluator"}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// takeReplicas makes a task of each replica type of a field.
func (j *kubeflowJob) takeReplicas(at Path) error {
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

func (j *kubeflowJob) takeReplica(at Path) (*kubeflowReplica, error) {
	to := Path{"spec", "tasks", strconv.Itoa(len(j.spec.Tasks))}
	j.moved(at, to)
	name := strings.ToLower(at[len(at)-1])
	replica := &kubeflowReplica{at: at, task: v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name}}
	count, err := takeAs[int32](j.manifest, at.Child("replicas"))
	if err != nil {
		return nil, err
	}
	replica.task.Replicas = count
	policy, err := takeAs[string](j.manifest, at.Child("restartPolicy"))
	if err != nil {
		return nil, err
	}
	replica.restartPolicy = j.restartPolicy
	if policy != nil && *policy != "" {
		replica.restartPolicy, replica.says = *policy, *policy
	}
	template, err := j.takeObject(at.Child("template"))
	if err != nil {
		return nil, err
	}
	j.adapt(template, at.Child("template"))
	replica.task.Template, err = rawObject(template)
	return replica, err
}

func (j *kubeflowJob) replica(name string) *kubeflowReplica {
	for i := range j.replicas {
		if j.replicas[i].task.Name == name {
			return &j.replicas[i]
		}
	}
	return nil
}

// decides says which task decides about the job.
func (j *kubeflowJob) decides(task string) {
	j.spec.SuccessPolicy = &v2alpha1.SuccessPolicy{Operator: v2alpha1.SuccessPolicyAll, TargetTasks: []string{task}}
}
