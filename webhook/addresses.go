// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strconv"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// maxVariableBytes is how long one variable of a process's environment may be
// on Linux, its name and its end included: 32 pages of 4 KiB.
const maxVariableBytes = 128 << 10

// warnAddresses says where the pods cannot be told of each other: a process whose
// environment has a longer variable does not start. That is no reason to refuse
// the job: what it is for may not be to start a process.
func warnAddresses(job *v2alpha1.DIJob, at paths) []string {
	if coordinatorLed(&job.Spec) {
		return nil
	}
	variable := longestVariable(&job.Spec)
	size, enough := sizeOfAddresses(job, variable)
	if size <= maxVariableBytes {
		return nil
	}
	var w notes
	w.add(at.spec("tasks"), "no container of this many replicas can start, of %d it can: %s lists the addresses of all, "+
		"which are %d bytes, and Linux starts a process with at most %d in one variable", enough, variable, size, maxVariableBytes)
	return w
}

// longestVariable returns which variable lists the addresses of all replicas in
// the most bytes.
func longestVariable(spec *v2alpha1.DIJobSpec) string {
	if slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow) && !names.HasDynamicWorkers(spec) {
		return names.EnvTFConfig
	}
	return names.EnvDINodes
}

// sizeOfAddresses returns how long the variable of all addresses is, and of how
// many replicas it is short enough. In TF_CONFIG each address has a port, which
// is taken to have five digits, and quotes, and each task its name.
func sizeOfAddresses(job *v2alpha1.DIJob, variable string) (size, enough int64) {
	around, longest := len(variable)+len("="), 1
	beside := 0
	if variable == names.EnvTFConfig {
		around += len(`{"cluster":{},"task":{"type":"","index":99999},"environment":"cloud"}`)
		beside = len(`"":22270`)
	}
	elastic := names.ElasticTask(&job.Spec)
	for i := range job.Spec.Tasks {
		count := int64(wantedReplicas(&job.Spec, i, elastic))
		if count < 1 {
			continue
		}
		task := names.TaskName(&job.Spec.Tasks[i])
		if variable == names.EnvTFConfig {
			// Also for the pod's own place.
			around += len(`"":[],`) + 2*len(task)
		}
		// A comma follows, and after the last the variable's end.
		address := len(names.WorkerFQDN(names.WorkerPod(job.Name, task, 0), job.Name, job.Namespace, names.DefaultDomain)) + beside + 1
		size += count*int64(address-1) + digitsBelow(count)
		longest = max(longest, address+len(strconv.FormatInt(count-1, 10))-1)
	}
	return size + int64(around), int64((maxVariableBytes - around) / longest)
}

// digitsBelow returns how many digits the numbers from 0 to count-1 have together.
func digitsBelow(count int64) int64 {
	digits := count
	for power := int64(10); power < count; power *= 10 {
		digits += count - power
	}
	return digits
}

// wantedReplicas returns how many replicas a task is to have now, in a job with
// that elastic task.
func wantedReplicas(spec *v2alpha1.DIJobSpec, i, elastic int) int32 {
	if spec.Elastic != nil && spec.Elastic.Replicas != nil && elastic == i {
		return *spec.Elastic.Replicas
	}
	return replicasOf(&spec.Tasks[i])
}
