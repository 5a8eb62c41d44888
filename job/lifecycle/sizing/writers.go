// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sizing

import (
	"encoding/json"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// writer is the owner of a field of a job: the manager that last changed its value. The
// zero value is an unknown one.
type writer struct {
	manager, subresource string
	// at is when it last wrote any field that it owns.
	at time.Time
}

// subresourceScale is the subresource that autoscalers write.
const subresourceScale = "scale"

// String describes a writer to a person.
func (w writer) String() string {
	switch {
	case w == writer{}:
		return "by an unknown writer"
	case w.subresource == "":
		return "by " + w.manager
	case w.manager == "":
		return "through /" + w.subresource
	}
	return "by " + w.manager + " through /" + w.subresource
}

// isOperator reports whether a writer is the operator, or that of an earlier release, which used
// the name of its program.
func (w writer) isOperator() bool {
	return w.manager == names.ControllerName || w.manager == "di-orchestrator"
}

// statusWriter returns who last wrote status.replicas.
func statusWriter(job *v2alpha1.DIJob) writer {
	return lastWriter(job, "status", "replicas")
}

// IsStatusOfOperator reports whether the operator last wrote status.replicas.
func IsStatusOfOperator(job *v2alpha1.DIJob) bool {
	return statusWriter(job).isOperator()
}

// tasksWriter returns who last wrote spec.tasks, which has one owner as a whole.
func tasksWriter(job *v2alpha1.DIJob) writer {
	return lastWriter(job, "spec", "tasks")
}

// elasticWriter returns who last wrote the spec's count of the elastic task, in one of its two
// fields. The webhook syncs them, which the managed fields do not record. A write to the scale
// subresource bypasses the webhook. It is recorded without its time, and not at all if the field
// had no owner because the webhook had set it.
func elasticWriter(job *v2alpha1.DIJob, task int) writer {
	tasks := tasksWriter(job)
	if job.Spec.Elastic == nil || job.Spec.Elastic.Replicas == nil {
		return tasks
	}
	found := lastWriter(job, "spec", "elastic", "replicas")
	isLevel := *job.Spec.Elastic.Replicas == ptr.Deref(job.Spec.Tasks[task].Replicas, 1)
	switch {
	case isLevel && !found.at.IsZero() && tasks.at.After(found.at):
		return tasks
	case isLevel && found.at.IsZero() && !tasks.at.Before(lastWriter(job, "status", "scaling").at):
		// The tasks were written after the last counts were acted on.
		return tasks
	case found == writer{}:
		return writer{subresource: subresourceScale}
	}
	return found
}

// boundsWriter returns who last wrote the bound that a count was clamped to.
func boundsWriter(job *v2alpha1.DIJob, count int32) writer {
	if bounds := job.Spec.Elastic; bounds != nil && bounds.MaxReplicas != nil && *bounds.MaxReplicas == count {
		return lastWriter(job, "spec", "elastic", "maxReplicas")
	}
	return lastWriter(job, "spec", "elastic", "minReplicas")
}

// isStatusLater reports whether status.replicas was written after the counts of the spec, according
// to the job's managed fields. Their times are in seconds, and they omit the scale subresource.
func isStatusLater(job *v2alpha1.DIJob) bool {
	if scaling := job.Status.Scaling; scaling == nil || job.Status.Replicas == scaling.LastReplicas {
		return false
	}
	spec := tasksWriter(job)
	if elastic := names.ElasticTask(&job.Spec); elastic >= 0 {
		spec = elasticWriter(job, elastic)
	}
	return !spec.at.IsZero() && statusWriter(job).at.After(spec.at)
}

// lastWriter returns the owner of a field. If several managers set the same value, it returns the
// one that wrote last.
func lastWriter(job *v2alpha1.DIJob, path ...string) writer {
	var last writer
	for i := range job.ManagedFields {
		entry := &job.ManagedFields[i]
		if entry.FieldsV1 == nil || !holds(entry.FieldsV1.GetRawBytes(), path) {
			continue
		}
		found := writer{manager: entry.Manager, subresource: entry.Subresource}
		if entry.Time != nil {
			found.at = entry.Time.Time
		}
		if last.manager == "" || found.at.After(last.at) {
			last = found
		}
	}
	return last
}

// holds reports whether a set of fields contains the field at the path.
func holds(fields []byte, path []string) bool {
	for _, name := range path {
		var members map[string]json.RawMessage
		if json.Unmarshal(fields, &members) != nil {
			return false
		}
		member, exists := members["f:"+name]
		if !exists {
			return false
		}
		fields = member
	}
	return true
}
