// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// tfJob is a TFJob during its import.
type tfJob struct {
	kubeflowJob
}

// importTFJob imports a TFJob of kubeflow's training operator.
func importTFJob(m *manifest) any {
	metadata := m.takeMetadata()
	j := &tfJob{kubeflowJob{manifest: m, restartPolicy: "Never"}}
	j.adapt = j.adaptTemplate
	return j.follow(metadata, func() { j.takeReplicas(Path{"spec", "tfReplicaSpecs"}) },
		j.takeClusterSpec, j.takeRunPolicy, j.takeSuccessPolicy, j.takeRestartPolicies, j.takeDynamicWorker)
}

// adaptTemplate gives the main container and its port the names that the operator expects.
func (j *tfJob) adaptTemplate(template map[string]any, at Path) {
	renaming{container: "tensorflow", port: "tfjob-port", toPort: mainPort}.apply(j.manifest, template, at)
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

// takeClusterSpec requests TF_CONFIG. Kubeflow sets it except in a job of one pod, where TensorFlow
// trains without it.
func (j *tfJob) takeClusterSpec() {
	pods := int64(0)
	for i := range j.replicas {
		pods += int64(ptr.Deref(j.replicas[i].task.Replicas, 1))
	}
	if pods == 1 {
		j.note(Path{"spec", "tfReplicaSpecs"}, nil, "is one pod, which gets no TF_CONFIG, as in kubeflow", "")
	}
	j.spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}
}

// takeSuccessPolicy sets which tasks determine the result of the job. In kubeflow it is the chief,
// or worker 0 if there is no chief. AllWorkers requires every worker if there is no chief.
func (j *tfJob) takeSuccessPolicy() {
	at := Path{"spec", "successPolicy"}
	policy := takeAs[string](j.manifest, at)
	allWorkers := policy != nil && *policy == "AllWorkers"
	if policy != nil && *policy != "" && !allWorkers {
		j.failf(`%s: %q is neither AllWorkers nor ""`, at, *policy)
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
}

// leader returns the replica type that determines the result of a TFJob, and nil if there is none.
func (j *tfJob) leader() *kubeflowReplica {
	if chief := j.replica("chief"); chief != nil {
		return chief
	}
	return j.replica("master")
}

func (j *tfJob) takeDynamicWorker() {
	at := Path{"spec", "enableDynamicWorker"}
	dynamic := takeAs[bool](j.manifest, at)
	if dynamic == nil {
		return
	}
	if !*dynamic || j.replica("worker") == nil {
		j.note(at, *dynamic, "left out: nothing follows from it", "")
		return
	}
	j.spec.Elastic = &v2alpha1.Elastic{Task: "worker", OnResize: v2alpha1.OnResizeContinue}
	j.note(at, true, "became spec.elastic of the task worker: workers may be added and removed while the others go on, and TF_CONFIG says so", "")
	j.lost(at, true, "a failed worker no longer leaves the job as it is, but is treated by spec.failurePolicy", "see spec.failurePolicy")
}
