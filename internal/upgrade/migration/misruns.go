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

// Release is an earlier release that jobs may be handed back to.
type Release string

// The releases that there is a way back to.
const (
	// ReleaseV0 is v0.2.2, which knows v1alpha1 and coordinator-led jobs.
	ReleaseV0 Release = "v0.2.2"
	// ReleaseV1 is v1.1.3, which knows v2alpha1 and worker-led jobs.
	ReleaseV1 Release = "v1.1.3"
)

// StorageOf returns the version that a release needs objects to be stored in.
func StorageOf(release Release) string {
	if release == ReleaseV0 {
		return v1alpha1.Version
	}
	return v2alpha1.Version
}

// ReleaseOf returns the release for which objects are stored in a version; none
// where that is this one's.
func ReleaseOf(version string) Release {
	if version == v1alpha1.Version {
		return ReleaseV0
	}
	return ""
}

// Misruns returns why a release would run a job in another way than its spec
// says; nothing where it would not, as for a job that has finished or is being
// deleted.
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

// unknownTo returns the fields by which both releases would not go that know a
// job's lifecycle. Others say what such a release does in any case, or are empty.
func unknownTo(job *v2alpha1.DIJob, release Release) []string {
	spec := &job.Spec
	fields := map[string]bool{
		"suspend":               ptr.Deref(spec.Suspend, false),
		"activeDeadlineSeconds": spec.ActiveDeadlineSeconds != nil,
		// It keeps jobs for ever, and a quota or a queue may count on it.
		"ttlSecondsAfterFinished": spec.TTLSecondsAfterFinished != nil,
		"failurePolicy":           spec.FailurePolicy != nil,
		"successPolicy":           spec.SuccessPolicy != nil,
		"managedBy":               spec.ManagedBy != nil,
		"scheduling":              spec.Scheduling != nil && *spec.Scheduling != (v2alpha1.Scheduling{}),
		"clusterSpec":             len(spec.ClusterSpec) > 0,
		"aggregatorConfig":        spec.AggregatorConfig != nil,
	}
	if release == ReleaseV0 {
		fields["priority"] = spec.Priority == v2alpha1.PriorityHigh && spec.PriorityClassName == ""
		fields["tasks"] = !isExpressible(spec.Tasks)
	} else {
		// These are fields of v1alpha1 that v1.1.3 has not.
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

// isScaled reports whether another number of replicas was asked for than the tasks
// say.
func isScaled(spec *v2alpha1.DIJobSpec) bool {
	if spec.Elastic == nil || spec.Elastic.Replicas == nil {
		return false
	}
	return !slices.ContainsFunc(spec.Tasks, func(task v2alpha1.Task) bool {
		name := cmp.Or(task.Name, string(task.Type))
		return name == cmp.Or(spec.Elastic.Task, name) && ptr.Deref(task.Replicas, 1) == *spec.Elastic.Replicas
	})
}

// isExpressible reports whether the tasks of a coordinator-led job are those that
// v1alpha1's fields imply: one of each role, under its name.
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

// Describe names a job and why a release would misrun it.
func Describe(job *v2alpha1.DIJob, reasons []string) string {
	return fmt.Sprintf("%s/%s (%s)", job.Namespace, job.Name, strings.Join(reasons, ", "))
}
