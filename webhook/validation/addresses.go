// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// validateAddresses checks that the pods can read the addresses of their peers, because
// they could not start otherwise. The domain is that of the cluster's services.
func validateAddresses(job *v2alpha1.DIJob, at paths, domain string) field.ErrorList {
	const remedy = "have at most %d replicas, or shorten the names of job, tasks and namespace"
	var errs field.ErrorList
	if listsAll(&job.Spec) {
		if size, around, longest := sizeOfAddresses(job, names.EnvTFConfig, domain); size > workload.MaxVariable {
			errs = append(errs, field.Forbidden(at.spec("clusterSpec"), fmt.Sprintf(
				"TensorFlow reads the addresses of all replicas in TF_CONFIG, and Linux starts no process with more than %d bytes in one variable: "+remedy,
				workload.MaxVariable, (workload.MaxVariable-around)/longest)))
		}
	}
	size, around, longest := sizeOfAddresses(job, names.EnvDINodes, domain)
	if lists := listsOf(&job.Spec); (size-around)*lists > workload.MaxNodes {
		errs = append(errs, field.Forbidden(at.spec("tasks"), fmt.Sprintf(
			"the pods find the addresses of all replicas in a ConfigMap, which holds at most %d bytes: "+remedy, workload.MaxNodes, workload.MaxNodes/lists/longest)))
	}
	return append(errs, validateHostfile(job, at, domain, (size-around)*listsOf(&job.Spec))...)
}

// listsAll reports whether TF_CONFIG lists all replicas.
func listsAll(spec *v2alpha1.DIJobSpec) bool {
	return slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow) && !names.HasDynamicWorkers(spec)
}

// listsOf returns how often a ConfigMap lists each address: once in all, and once in its
// task unless there is only one.
func listsOf(spec *v2alpha1.DIJobSpec) int64 {
	tasks, elastic := 0, names.ElasticTask(spec)
	for i := range spec.Tasks {
		if desiredReplicas(spec, i, elastic) > 0 {
			tasks++
		}
	}
	if tasks > 1 {
		return 2
	}
	return 1
}

// sizeOfAddresses returns three lengths: of the variable with all addresses, of its part around
// them, and of the longest address. In TF_CONFIG each address has a port and quotes, and each task
// its name. An empty domain means the default one.
func sizeOfAddresses(job *v2alpha1.DIJob, variable, domain string) (size, around, longest int64) {
	start, most := len(variable)+len("="), 1
	if variable == names.EnvTFConfig {
		start += len(`{"cluster":{},"task":{"type":"","index":99999},"environment":"cloud"}`)
	}
	elastic := names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		count := int64(desiredReplicas(&job.Spec, i, elastic))
		if count < 1 {
			continue
		}
		task, beside := names.TaskName(&job.Spec.Tasks[i]), 0
		if variable == names.EnvTFConfig {
			// The name of the pod's own task occurs once more.
			start += len(`"":[],`) + 2*len(task)
			beside = len(`"":`) + len(strconv.Itoa(int(portOf(&job.Spec.Tasks[i]))))
		}
		// A comma follows, and after the last the variable's end.
		address := len(names.WorkerFQDN(names.WorkerPod(job.Name, task, 0), job.Name, job.Namespace, cmp.Or(domain, names.DefaultDomain))) + beside + 1
		size += count*int64(address-1) + digitsBelow(count)
		most = max(most, address+len(strconv.FormatInt(count-1, 10))-1)
	}
	return size + int64(start), int64(start), int64(most)
}

// portOf returns the port that the replicas of a task serve on. Errors of the template are
// reported elsewhere.
func portOf(task *v2alpha1.Task) int32 {
	template, _ := jsontype.Read[corev1.PodTemplateSpec](task.Template.Raw, field.NewPath("template"))
	if template == nil || len(template.Spec.Containers) == 0 {
		return names.DefaultWorkerPort
	}
	return names.NamedPort(&template.Spec, names.Port, names.DefaultWorkerPort)
}

// digitsBelow returns the total number of digits of the numbers from 0 to count-1.
func digitsBelow(count int64) int64 {
	digits := count
	for power := int64(10); power < count; power *= 10 {
		digits += count - power
	}
	return digits
}

// desiredReplicas returns the desired replicas of a task in a job with that elastic task.
func desiredReplicas(spec *v2alpha1.DIJobSpec, i, elastic int) int32 {
	if spec.Elastic != nil && spec.Elastic.Replicas != nil && elastic == i {
		return *spec.Elastic.Replicas
	}
	return replicasOf(&spec.Tasks[i])
}
