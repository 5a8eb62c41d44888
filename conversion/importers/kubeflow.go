// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const kubeflowVersion = "kubeflow.org/v1"

// kubeflowReplica is one replica type of a kubeflow job as the resulting task.
type kubeflowReplica struct {
	task          v2alpha1.Task
	at            Path
	restartPolicy string
	// says is the policy in the manifest, and nil if it is not set.
	says any
}

// kubeflowJob is a job of kubeflow's training operator during its import.
type kubeflowJob struct {
	*manifest
	// restartPolicy is the default for replica types that do not set one.
	restartPolicy string
	// adapt changes the template of a replica type to that of a task.
	adapt    func(template map[string]any, at Path)
	spec     v2alpha1.DIJobSpec
	replicas []kubeflowReplica
}

// follow runs the steps of an import and returns the job.
func (j *kubeflowJob) follow(metadata map[string]any, steps ...func()) any {
	j.dropStatus()
	for _, step := range steps {
		if step(); j.err != nil {
			return nil
		}
	}
	j.leaveToQueue(metadata, &j.spec)
	sortMoves(j.result.Moves)
	return newJob(metadata, j.spec)
}

// taskOrder returns the position of a task, which determines its ranks: the leading task is first.
func taskOrder(name string) int {
	order := []string{"chief", "master", "launcher", "worker", "ps", "evaluator"}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// takeReplicas imports each replica type of a field as a task.
func (j *kubeflowJob) takeReplicas(at Path) {
	types := j.members(at)
	slices.SortStableFunc(types, func(a, b string) int {
		return taskOrder(strings.ToLower(a)) - taskOrder(strings.ToLower(b))
	})
	for _, replicaType := range types {
		replica := j.takeReplica(at.Child(replicaType))
		if other := j.replica(replica.task.Name); other != nil {
			j.failf("%s: is the same replica type as %s, whose name differs in letter case only", replica.at, other.at)
		}
		j.replicas = append(j.replicas, *replica)
		j.spec.Tasks = append(j.spec.Tasks, replica.task)
	}
	if len(types) == 0 {
		j.failf("%s: names no replica type, a job needs something to run", at)
	}
}

func (j *kubeflowJob) takeReplica(at Path) *kubeflowReplica {
	to := Path{"spec", "tasks", strconv.Itoa(len(j.spec.Tasks))}
	j.moved(at, to)
	name := strings.ToLower(at[len(at)-1])
	replica := &kubeflowReplica{at: at, task: v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name}}
	replica.task.Replicas = takeAs[int32](j.manifest, at.Child("replicas"))
	replica.restartPolicy = j.restartPolicy
	if policy := takeAs[string](j.manifest, at.Child("restartPolicy")); policy != nil && *policy != "" {
		replica.restartPolicy, replica.says = *policy, *policy
	}
	template := j.takeObject(at.Child("template"))
	j.adapt(template, at.Child("template"))
	replica.task.Template = j.rawObject(template)
	return replica
}

func (j *kubeflowJob) replica(name string) *kubeflowReplica {
	for i := range j.replicas {
		if j.replicas[i].task.Name == name {
			return &j.replicas[i]
		}
	}
	return nil
}

// decides makes the task determine the result of the job.
func (j *kubeflowJob) decides(task string) {
	j.spec.SuccessPolicy = &v2alpha1.SuccessPolicy{Operator: v2alpha1.SuccessPolicyAll, TargetTasks: []string{task}}
}
