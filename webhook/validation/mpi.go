// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// validateMPI checks that an MPI job has one launcher, and hosts for its processes.
func validateMPI(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	if !names.HasMPI(spec) {
		return nil
	}
	var errs field.ErrorList
	elastic, launchers, workers := names.ElasticTask(spec), 0, 0
	for i := range spec.Tasks {
		if names.TaskName(&spec.Tasks[i]) != names.LauncherTask {
			workers++
			continue
		}
		launchers++
		if count := desiredReplicas(spec, i, elastic); count != 1 {
			errs = append(errs, field.Invalid(at.task(i, "replicas"), count, "must be 1: one launcher starts the processes of all workers"))
		}
	}
	if launchers == 0 {
		errs = append(errs, field.Required(at.spec("tasks"), "clusterSpec MPI needs a task named launcher, whose program is mpirun or starts it"))
	}
	if workers == 0 && (spec.MPI == nil || !spec.MPI.RunLauncherAsWorker) {
		errs = append(errs, field.Required(at.spec("tasks"), fmt.Sprintf(
			"clusterSpec MPI needs a task beside launcher, whose replicas run the processes: add one, for example worker, or set %s", at.spec("mpi").Child("runLauncherAsWorker"))))
	}
	if workers > 0 && spec.Elastic != nil && elastic >= 0 && names.TaskName(&spec.Tasks[elastic]) == names.LauncherTask {
		errs = append(errs, field.Invalid(at.spec("elastic").Child("task"), names.LauncherTask, "must be a task of workers: an MPI job has one launcher"))
	}
	if names.HasDynamicWorkers(spec) && spec.Elastic.MaxReplicas == nil {
		errs = append(errs, field.Required(at.spec("elastic").Child("maxReplicas"),
			"must be the maximum number of workers: discover_hosts.sh asks so many whether they run"))
	}
	return append(errs, validateMPIVolumes(spec, at)...)
}

// validateMPIVolumes checks that the volumes and the container that the operator adds have names of their own.
func validateMPIVolumes(spec *v2alpha1.DIJobSpec, at paths) field.ErrorList {
	const taken = "must be another name: the operator adds a %s of this name to pods of MPI jobs"
	var errs field.ErrorList
	for i := range spec.Volumes {
		path := at.spec("volumes").Index(i)
		volume, _ := jsontype.Read[corev1.Volume](spec.Volumes[i].Raw, path)
		if volume != nil && isMPIVolume(volume.Name) && !full(errs) {
			errs = append(errs, field.Invalid(path.Child("name"), volume.Name, fmt.Sprintf(taken, "volume")))
		}
	}
	for i := range spec.Tasks {
		path := at.task(i, "template").Child("spec")
		for j, name := range volumeNames(&spec.Tasks[i]) {
			if isMPIVolume(name) && !full(errs) {
				errs = append(errs, field.Invalid(path.Child("volumes").Index(j).Child("name"), name, fmt.Sprintf(taken, "volume")))
			}
		}
		template, _ := jsontype.Read[corev1.PodTemplateSpec](spec.Tasks[i].Template.Raw, path)
		if template == nil {
			continue
		}
		for j := range template.Spec.InitContainers {
			if name := template.Spec.InitContainers[j].Name; name == names.MPIWait && !full(errs) {
				errs = append(errs, field.Invalid(path.Child("initContainers").Index(j).Child("name"), name, fmt.Sprintf(taken, "container")))
			}
		}
	}
	return errs
}

func isMPIVolume(name string) bool { return name == names.MPIVolume || name == names.SSHVolume }

// validateHostfile checks that the ConfigMap of an MPI job holds the hostfile and the list of workers beside the
// addresses of all replicas, which take a size. A line of the hostfile has an address and its slots, and one of the list
// has two addresses and slots.
func validateHostfile(job *v2alpha1.DIJob, at paths, domain string, addresses int64) field.ErrorList {
	if !names.HasMPI(&job.Spec) {
		return nil
	}
	const script, slots = 512, int64(len(" slots=\n"))
	digits := int64(len(strconv.Itoa(limits.SlotsPerWorker)))
	size, elastic := addresses+script, names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		count := int64(desiredReplicas(&job.Spec, i, elastic))
		known := count
		if i == elastic && names.HasDynamicWorkers(&job.Spec) && job.Spec.Elastic.MaxReplicas != nil {
			known = max(count, int64(*job.Spec.Elastic.MaxReplicas))
		}
		pod := names.WorkerPod(job.Name, names.TaskName(&job.Spec.Tasks[i]), int32(max(known-1, 0)))
		address := int64(len(names.WorkerFQDN(pod, job.Name, job.Namespace, cmp.Or(domain, names.DefaultDomain))))
		size += count*(address+slots+digits) + known*(2*address+int64(len(". :\n"))+digits)
	}
	if size <= workload.MaxNodes {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.spec("clusterSpec"), fmt.Sprintf(
		"MPI: the hostfile, the list of workers and the addresses of all replicas take up to %d bytes, and a ConfigMap holds at most %d: "+
			"have fewer replicas, a lower %s, or shorter names of job, tasks and namespace", size, workload.MaxNodes, at.spec("elastic").Child("maxReplicas")))}
}
