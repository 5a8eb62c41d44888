// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/dustin/go-humanize/english"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/failure"
)

// Resize changes the desired replicas of a worker-led job. It changes the total in the status, or the
// range of a preemptible job, because the allocator sets the total of such a job. It returns the patch
// that writes the change. It also returns a message that describes the granted change if that differs from
// the requested one.
func Resize(job *v2alpha1.DIJob, by int64) (JobPatch, string, error) {
	if err := CheckWritable(job); err != nil {
		return JobPatch{}, "", err
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 {
		return JobPatch{}, "", failure.New(failure.Invalid,
			"job %s/%s has no task that can be resized: name one in spec.elastic.task", job.Namespace, job.Name)
	}
	if !job.Spec.Preemptible && names.FollowsRatio(&job.Spec, elastic) {
		return JobPatch{}, "", failure.New(failure.Conflict,
			"the ratio rule in spec.autoscale.ratio of job %s/%s sets the number of task %q: bound it by minReplicas and maxReplicas, or "+
				"remove the rule", job.Namespace, job.Name, names.TaskName(&job.Spec.Tasks[elastic]))
	}
	original := job.DeepCopy()
	if job.Spec.Preemptible {
		granted, err := moveRange(job, elastic, by)
		return changed(original, ""), granted, err
	}
	granted, err := moveTotal(job, elastic, by)
	return changed(original, "status"), granted, err
}

// moveTotal changes the desired total within the bounds of the elastic task.
func moveTotal(job *v2alpha1.DIJob, elastic int, by int64) (string, error) {
	spec := specCounts(job, elastic)
	if scaling := job.Status.Scaling; scaling != nil && !maps.Equal(scaling.SpecReplicas, spec) {
		// The spec has new counts that the operator has not adopted yet. It would overwrite a change made
		// before that.
		return "", ErrNotYet
	}
	total := desiredReplicas(job, spec)
	task := names.TaskName(&job.Spec.Tasks[elastic])
	count := total + int64(spec[task])
	for _, replicas := range spec {
		count -= int64(replicas)
	}
	to, limit := clamp(count, by, job.Spec.Elastic)
	rest := total - count
	if by < 0 && rest+to < 1 {
		to, limit = min(count, 1-rest), "the last replica of the job"
	}
	if rest+to > math.MaxInt32 {
		return "", overflow(job, by, total+by)
	}
	job.Status.Replicas = int32(rest + to)
	if limit == "" {
		return "", nil
	}
	return fmt.Sprintf("%d of %d, as task %q has %s", max(to-count, count-to), max(by, -by), task, limit), nil
}

// clamp returns a task's count changed within its bounds, and the bound that it has reached, if any. If
// the count is already out of bounds, the operator corrects it.
func clamp(count, by int64, elastic *v2alpha1.Elastic) (int64, string) {
	bounds := ptr.Deref(elastic, v2alpha1.Elastic{})
	least, most := int64(ptr.Deref(bounds.MinReplicas, 0)), int64(ptr.Deref(bounds.MaxReplicas, math.MaxInt32))
	switch to := count + by; {
	case by > 0 && to > most:
		return max(count, most), "at most " + english.Plural(int(most), "replica", "") + " (spec.elastic.maxReplicas)"
	case by < 0 && to < least && bounds.MinReplicas != nil:
		return min(count, least), "at least " + english.Plural(int(least), "replica", "") + " (spec.elastic.minReplicas)"
	case by < 0 && to < 0:
		return min(count, 0), "no more"
	default:
		return to, ""
	}
}

// overflow returns the failure of a number of replicas that exceeds its field.
func overflow(job *v2alpha1.DIJob, by, replicas int64) error {
	return failure.New(failure.Invalid, "replicas: %+d would leave job %s/%s with %d replicas", by, job.Namespace, job.Name, replicas)
}

// moveRange changes the bounds of a job's elastic task. The allocator decides between the bounds.
// moveRange returns a message with the new bounds. An absent bound defaults to the count of the task.
func moveRange(job *v2alpha1.DIJob, task int, by int64) (string, error) {
	name, count := names.TaskName(&job.Spec.Tasks[task]), taskReplicas(job, task, task)
	elastic := ptr.Deref(job.Spec.Elastic, v2alpha1.Elastic{Task: name})
	if elastic.MaxReplicas == nil {
		elastic.MinReplicas = ptr.To(min(ptr.Deref(elastic.MinReplicas, count), count))
		elastic.MaxReplicas = &count
	}
	// A job that removes replicas keeps one.
	most := max(int64(*elastic.MaxReplicas)+by, min(int64(*elastic.MaxReplicas), 1))
	if most > math.MaxInt32 {
		return "", overflow(job, by, most)
	}
	elastic.MaxReplicas = ptr.To(int32(most))
	if elastic.MinReplicas != nil {
		elastic.MinReplicas = ptr.To(int32(min(max(int64(*elastic.MinReplicas)+by, 0), math.MaxInt32)))
	}
	job.Spec.Elastic = &elastic
	least := min(ptr.Deref(elastic.MinReplicas, count), int32(most))
	return fmt.Sprintf("the allocator may give task %q %d to %d", name, least, most), nil
}

// desiredReplicas returns the desired total of the status. Before the operator has written a status, it
// returns the total of the spec.
func desiredReplicas(job *v2alpha1.DIJob, spec map[string]int32) int64 {
	if job.Status.Replicas > 0 {
		return int64(job.Status.Replicas)
	}
	var total int64
	for _, replicas := range spec {
		total += int64(replicas)
	}
	return total
}

// specCounts returns the replicas of each task in the spec.
func specCounts(job *v2alpha1.DIJob, elastic int) map[string]int32 {
	counts := make(map[string]int32, len(job.Spec.Tasks))
	for i := range job.Spec.Tasks {
		counts[names.TaskName(&job.Spec.Tasks[i])] = taskReplicas(job, i, elastic)
	}
	return counts
}

// MaxReplicas returns the number of replicas that a job may reach without another request.
func MaxReplicas(job *v2alpha1.DIJob) int64 {
	if job.Spec.Preemptible && job.Spec.Elastic != nil {
		return int64(ptr.Deref(job.Spec.Elastic.MaxReplicas, 0))
	}
	return int64(job.Status.Replicas)
}

// taskReplicas returns the replicas of a task in the spec. For the elastic task, elastic.replicas takes
// precedence.
func taskReplicas(job *v2alpha1.DIJob, task, elastic int) int32 {
	if task == elastic && job.Spec.Elastic != nil && job.Spec.Elastic.Replicas != nil {
		return *job.Spec.Elastic.Replicas
	}
	return ptr.Deref(job.Spec.Tasks[task].Replicas, 1)
}

// Report returns the patch that stores a profiling report unchanged. A merge patch would drop its nulls.
func Report(job *v2alpha1.DIJob, profilings json.RawMessage) (JobPatch, error) {
	return setStatus(job, "profilings", profilings)
}

// Rates returns the patch that stores the rates of a job.
func Rates(job *v2alpha1.DIJob, rates []v2alpha1.RoleRates) (JobPatch, error) {
	return setStatus(job, "rates", rates)
}

// setStatus returns the patch that replaces one field of a status.
func setStatus(job *v2alpha1.DIJob, field string, value any) (JobPatch, error) {
	type operation struct {
		Operation string `json:"op"`
		Path      string `json:"path"`
		Value     any    `json:"value"`
	}
	add := operation{"add", "/status/" + field, value}
	if equality.Semantic.DeepEqual(job.Status, v2alpha1.DIJobStatus{}) {
		// The job may have no status that the patch could add to.
		add = operation{"add", "/status", map[string]any{field: value}}
	}
	// The replace of resourceVersion causes a conflict if the job has changed since it was read.
	lock := operation{"replace", "/metadata/resourceVersion", job.ResourceVersion}
	content, err := json.Marshal([]operation{lock, add})
	if err != nil {
		return JobPatch{}, fmt.Errorf("encoding the patch of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return JobPatch{"status", client.RawPatch(types.JSONPatchType, content)}, nil
}
