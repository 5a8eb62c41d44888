// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Release is an earlier release to which jobs may be handed back.
type Release string

// The releases to which a rollback is possible.
const (
	// ReleaseV0 is v0.2.2, which knows v1alpha1 and coordinator-led jobs.
	ReleaseV0 Release = "v0.2.2"
	// ReleaseV1 is v1.1.3, which knows v2alpha1 and worker-led jobs.
	ReleaseV1 Release = "v1.1.3"
)

// StorageOf returns the storage version that a release needs.
func StorageOf(release Release) string {
	if release == ReleaseV0 {
		return v1alpha1.Version
	}
	return v2alpha1.Version
}

// ReleaseOf returns the release that needs a storage version, and "" if it is that of this release.
func ReleaseOf(version string) Release {
	if version == v1alpha1.Version {
		return ReleaseV0
	}
	return ""
}

// Misruns returns why a release would run a job differently from its spec. It returns nothing if
// the release would not, if the job has finished, or if it is terminating.
func Misruns(job *v2alpha1.DIJob, release Release) []string {
	if !job.DeletionTimestamp.IsZero() || job.Status.Phase == v2alpha1.JobSucceeded || job.Status.Phase == v2alpha1.JobFailed {
		return nil
	}
	led := job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed
	switch {
	case release == ReleaseV0 && !led:
		return []string{"it is led by its workers"}
	case release == ReleaseV1 && led:
		return []string{"it is led by its coordinator"}
	case release == ReleaseV0 || release == ReleaseV1:
		return unknownTo(job, release)
	}
	return nil
}

// unknownTo returns the fields that a release would ignore although it knows the job's lifecycle.
// Other fields describe what such a release does anyway, or are empty.
func unknownTo(job *v2alpha1.DIJob, release Release) []string {
	spec := &job.Spec
	fields := map[string]bool{
		"suspend":               ptr.Deref(spec.Suspend, false),
		"activeDeadlineSeconds": spec.ActiveDeadlineSeconds != nil,
		// It keeps jobs forever, and a quota or a queue may depend on their deletion.
		"ttlSecondsAfterFinished": spec.TTLSecondsAfterFinished != nil,
		"failurePolicy":           spec.FailurePolicy != nil,
		"successPolicy":           spec.SuccessPolicy != nil,
		"managedBy":               spec.ManagedBy != nil,
		"scheduling":              spec.Scheduling != nil && *spec.Scheduling != (v2alpha1.Scheduling{}),
		"clusterSpec":             len(spec.ClusterSpec) > 0,
		"aggregatorConfig":        spec.AggregatorConfig != nil,
		// The budget would keep its number when the job is resized.
		"disruption": spec.Disruption != nil,
	}
	if release == ReleaseV0 {
		fields["priority"] = spec.Priority == v2alpha1.PriorityHigh && spec.PriorityClassName == ""
		fields["tasks"] = !isExpressible(spec.Tasks)
	} else {
		// v1.1.3 does not have these fields of v1alpha1.
		fields["group"] = spec.Group != ""
		fields["priorityClassName"] = spec.PriorityClassName != ""
		fields["backoffLimit"] = ptr.Deref(spec.BackoffLimit, 0) < 0
	}
	var unknown []string
	for field, isSet := range fields {
		if isSet {
			unknown = append(unknown, "it does not know spec."+field)
		}
	}
	if release == ReleaseV1 && isScaled(spec) {
		unknown = append(unknown, "it does not know spec.elastic.replicas, which differs from the task's")
	}
	slices.Sort(unknown)
	return unknown
}

// isScaled reports whether spec.elastic requests another number of replicas than the task does.
func isScaled(spec *v2alpha1.DIJobSpec) bool {
	if spec.Elastic == nil || spec.Elastic.Replicas == nil {
		return false
	}
	return !slices.ContainsFunc(spec.Tasks, func(task v2alpha1.Task) bool {
		name := cmp.Or(task.Name, string(task.Type))
		return name == cmp.Or(spec.Elastic.Task, name) && ptr.Deref(task.Replicas, 1) == *spec.Elastic.Replicas
	})
}

// isExpressible reports whether the fields of v1alpha1 imply the tasks of a coordinator-led job:
// one of each role, under its name.
func isExpressible(tasks []v2alpha1.Task) bool {
	seen := map[v2alpha1.TaskType]bool{}
	for i := range tasks {
		task := &tasks[i]
		if seen[task.Type] || task.Name != "" && task.Name != string(task.Type) {
			return false
		}
		seen[task.Type] = true
	}
	return true
}

// Describe returns a job's name and why a release would misrun it.
func Describe(job *v2alpha1.DIJob, reasons []string) string {
	return fmt.Sprintf("%s/%s (%s)", job.Namespace, job.Name, strings.Join(reasons, ", "))
}
