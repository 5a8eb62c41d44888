// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"strings"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// mpiOperatorVersion is the version of jobs of kubeflow's mpi-operator. kubeflow's training operator has jobs of the
// kind, too, in kubeflowVersion.
const mpiOperatorVersion = "kubeflow.org/v2beta1"

// launcher is the name of the task that starts the processes of an MPI job.
const launcher = "launcher"

// mpiJob is an MPIJob during its import.
type mpiJob struct {
	kubeflowJob
	// isV1 is set for a job of the training operator.
	isV1 bool
}

// importMPIJob imports an MPIJob of kubeflow's mpi-operator, or of its training operator.
func importMPIJob(m *manifest) any {
	metadata := m.takeMetadata()
	j := &mpiJob{kubeflowJob: kubeflowJob{manifest: m, restartPolicy: "Never"}, isV1: m.rest["apiVersion"] == kubeflowVersion}
	j.adapt = func(map[string]any, Path) {}
	steps := []func(){j.checkTypes, j.takeMainContainer, func() { j.takeReplicas(j.specs()) }, j.takeMPI, j.takeRunPolicy, j.sayWorkers}
	if j.isV1 {
		return j.follow(metadata, append(steps, j.takeRestartPolicies)...)
	}
	return j.follow(metadata, append(steps, j.takePolicies)...)
}

func (j *mpiJob) specs() Path { return Path{"spec", "mpiReplicaSpecs"} }

// checkTypes fails for replica types that kubeflow does not know, and without a launcher.
func (j *mpiJob) checkTypes() {
	hasLauncher := false
	for _, name := range j.members(j.specs()) {
		switch strings.ToLower(name) {
		case launcher:
			hasLauncher = true
		case "worker":
		default:
			j.failf("%s: is neither Launcher nor Worker", j.specs().Child(name))
		}
	}
	if !hasLauncher {
		j.failf("%s: has no Launcher, which starts the processes", j.specs())
	}
}

// takeMPI imports the implementation, the slots and the path of the keys.
func (j *mpiJob) takeMPI() {
	j.spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}
	mpi, to := &v2alpha1.MPI{}, Path{"spec", "mpi"}
	j.spec.MPI = mpi
	if mpi.SlotsPerWorker = takeTo[int32](j.manifest, Path{"spec", "slotsPerWorker"}, to.Child("slotsPerWorker")); mpi.SlotsPerWorker == nil {
		mpi.SlotsPerWorker = ptr.To[int32](1)
		j.note(Path{"spec", "slotsPerWorker"}, nil, "is not set, which is 1 in kubeflow: became 1, as the default of a DIJob is the GPUs of a worker", "")
	}
	assign(j.manifest, &mpi.Implementation, Path{"spec", "mpiImplementation"}, to.Child("implementation"))
	assign(j.manifest, &mpi.SSHAuthMountPath, Path{"spec", "sshAuthMountPath"}, to.Child("sshAuthMountPath"))
	assign(j.manifest, &mpi.RunLauncherAsWorker, Path{"spec", "runLauncherAsWorker"}, to.Child("runLauncherAsWorker"))
	at := Path{"spec", "launcherCreationPolicy"}
	if policy := takeAs[string](j.manifest, at); policy != nil {
		j.note(at, *policy, "left out: the launcher is created with the workers, and waits in an init container until they answer", "")
	}
}

// sayWorkers reports what differs for workers.
func (j *mpiJob) sayWorkers() {
	worker := j.replica("worker")
	if worker == nil {
		return
	}
	if worker.task.Replicas == nil && !j.isV1 {
		for i := range j.spec.Tasks {
			if j.spec.Tasks[i].Name == worker.task.Name {
				j.spec.Tasks[i].Replicas = ptr.To[int32](0)
			}
		}
		j.note(worker.at.Child("replicas"), nil, "is not set, which is 0 in mpi-operator: became 0, as the default of a DIJob is 1", "")
	}
	if j.isV1 {
		j.lost(worker.at, nil, "the launcher entered workers by kubectl exec, which needs no daemon: it enters them by ssh now",
			"install OpenSSH's server in the workers' image and its client in the launcher's, and leave out a command that only sleeps")
	}
}

// takeMainContainer imports the name of the main container of the training operator's jobs.
func (j *mpiJob) takeMainContainer() {
	at := Path{"spec", "mainContainer"}
	if !j.isV1 {
		return
	}
	name := takeAs[string](j.manifest, at)
	if name == nil {
		return
	}
	for _, replica := range j.members(j.specs()) {
		template, _ := j.parent(j.specs().Child(replica, "template"))["template"].(map[string]any)
		if found := containers(template); len(found) == 0 || found[0]["name"] != *name {
			j.lost(at, *name, "the main container is the one named di-container, or the first", "name it di-container")
			return
		}
	}
	j.note(at, *name, "left out: the first container is the main one", "")
}

// takePolicies converts the restart policies of mpi-operator, whose launcher is a batch/v1 Job with a backoffLimit.
func (j *mpiJob) takePolicies() {
	j.addRule(v2alpha1.FailurePolicyRestartReplica, []string{launcher}, nil)
	for i := range j.replicas {
		replica := &j.replicas[i]
		at := replica.at.Child("restartPolicy")
		switch {
		case replica.task.Name == launcher:
			j.note(at, replica.says, "became a rule of spec.failurePolicy: a failed launcher is recreated within backoffLimit, as by its Job", "")
		case replica.restartPolicy == "Never":
			j.note(at, replica.says, "is the default: a failed worker restarts the job within backoffLimit, as mpirun ends without it", "")
		default:
			j.note(at, replica.says, "became a rule of spec.failurePolicy: a failed worker is recreated, as a new pod of the same name", "")
			j.addRule(v2alpha1.FailurePolicyRestartReplica, []string{replica.task.Name}, nil)
		}
	}
	if j.spec.BackoffLimit == nil {
		j.spec.BackoffLimit = ptr.To[int32](6)
		j.note(Path{"spec", "runPolicy", "backoffLimit"}, nil, "is not set, which is 6 in a Job: became 6, as the default of a DIJob is 3", "")
	}
}

// addRule adds a rule for tasks. It needs the policy.
func (j *mpiJob) addRule(action v2alpha1.FailurePolicyAction, tasks []string, on *v2alpha1.ExitCodesRequirement) {
	if j.spec.FailurePolicy == nil {
		j.spec.FailurePolicy = &v2alpha1.FailurePolicy{}
	}
	j.kubeflowJob.addRule(action, tasks, on)
}
