// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// jobPatch is a patch of a job, or of its subresource of that name, which is
// refused as a conflict if the job has changed since it was read.
type jobPatch struct {
	subresource string
	patch       client.Patch
}

// changed returns the patch that writes what becomes of the original.
func changed(original *v2alpha1.DIJob, subresource string) jobPatch {
	return jobPatch{subresource, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})}
}

// resized makes a worker-led job want more replicas, or fewer: it changes the
// total in its status, and of a preemptible job, whose total is the
// allocator's, the range that the allocator may use. It returns the patch that
// will write what becomes of the job, and what is granted where that is not
// just what is asked for.
func resized(job *v2alpha1.DIJob, by int64) (jobPatch, string, error) {
	if err := writable(job); err != nil {
		return jobPatch{}, "", err
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 {
		return jobPatch{}, "", failure(KindInvalid,
			"job %s/%s has no task that can be resized: name one in spec.elastic.task", job.Namespace, job.Name)
	}
	original := job.DeepCopy()
	if job.Spec.Preemptible {
		granted, err := moveRange(job, elastic, by)
		return changed(original, ""), granted, err
	}
	granted, err := moveTotal(job, elastic, by)
	return changed(original, "status"), granted, err
}

// moveTotal moves the total that is wanted, as far as the bounds of the elastic
// task let its count follow.
func moveTotal(job *v2alpha1.DIJob, elastic int, by int64) (string, error) {
	spec := specCounts(job, elastic)
	if scaling := job.Status.Scaling; scaling != nil && !maps.Equal(scaling.SpecReplicas, spec) {
		// The operator is about to start from the spec's new counts, and what is
		// added before it does would be lost.
		return "", errNotYet
	}
	total := wantedReplicas(job, spec)
	task := names.TaskName(&job.Spec.Tasks[elastic])
	count := total + int64(spec[task])
	for _, replicas := range spec {
		count -= int64(replicas)
	}
	to, limit := bounded(count, by, job.Spec.Elastic)
	rest := total - count
	if by < 0 && rest+to < 1 {
		to, limit = min(count, 1-rest), "the last replica of the job"
	}
	if rest+to > math.MaxInt32 {
		return "", impossible(job, by, total+by)
	}
	job.Status.Replicas = int32(rest + to)
	if limit == "" {
		return "", nil
	}
	return fmt.Sprintf("%d of %d, as task %q has %s", max(to-count, count-to), max(by, -by), task, limit), nil
}

// bounded returns a task's count moved within its bounds, and which of them it
// has come to, if it would have gone further. A count that is out of them
// already is the operator's to bring back.
func bounded(count, by int64, elastic *v2alpha1.Elastic) (int64, string) {
	bounds := ptr.Deref(elastic, v2alpha1.Elastic{})
	least, most := int64(ptr.Deref(bounds.MinReplicas, 0)), int64(ptr.Deref(bounds.MaxReplicas, math.MaxInt32))
	switch to := count + by; {
	case by > 0 && to > most:
		return max(count, most), fmt.Sprintf("at most %d replicas (spec.elastic.maxReplicas)", most)
	case by < 0 && to < least && bounds.MinReplicas != nil:
		return min(count, least), fmt.Sprintf("at least %d replicas (spec.elastic.minReplicas)", least)
	case by < 0 && to < 0:
		return min(count, 0), "no more"
	default:
		return to, ""
	}
}

// impossible is the refusal of more replicas than can be counted.
func impossible(job *v2alpha1.DIJob, by, replicas int64) error {
	return failure(KindInvalid, "replicas: %+d would leave job %s/%s with %d replicas", by, job.Namespace, job.Name, replicas)
}

// moveRange moves the bounds of a job's elastic task, between which the
// allocator decides, and says where they are. A bound that decides and is not
// there is the task's count.
func moveRange(job *v2alpha1.DIJob, task int, by int64) (string, error) {
	name, count := names.TaskName(&job.Spec.Tasks[task]), taskReplicas(job, task, task)
	elastic := ptr.Deref(job.Spec.Elastic, v2alpha1.Elastic{Task: name})
	if elastic.MaxReplicas == nil {
		elastic.MinReplicas = ptr.To(min(ptr.Deref(elastic.MinReplicas, count), count))
		elastic.MaxReplicas = &count
	}
	// A job that gives replicas away keeps one.
	most := max(int64(*elastic.MaxReplicas)+by, min(int64(*elastic.MaxReplicas), 1))
	if most > math.MaxInt32 {
		return "", impossible(job, by, most)
	}
	elastic.MaxReplicas = ptr.To(int32(most))
	if elastic.MinReplicas != nil {
		elastic.MinReplicas = ptr.To(int32(min(max(int64(*elastic.MinReplicas)+by, 0), math.MaxInt32)))
	}
	job.Spec.Elastic = &elastic
	least := min(ptr.Deref(elastic.MinReplicas, count), int32(most))
	return fmt.Sprintf("the allocator may give task %q %d to %d", name, least, most), nil
}

// wantedReplicas returns the total that is wanted now: what the status says,
// and before the operator has said it there, what the spec says.
func wantedReplicas(job *v2alpha1.DIJob, spec map[string]int32) int64 {
	if job.Status.Replicas > 0 {
		return int64(job.Status.Replicas)
	}
	var total int64
	for _, replicas := range spec {
		total += int64(replicas)
	}
	return total
}

// specCounts returns what the spec says of each task.
func specCounts(job *v2alpha1.DIJob, elastic int) map[string]int32 {
	counts := make(map[string]int32, len(job.Spec.Tasks))
	for i := range job.Spec.Tasks {
		counts[names.TaskName(&job.Spec.Tasks[i])] = taskReplicas(job, i, elastic)
	}
	return counts
}

// mostWanted returns to how many replicas a job may grow without being asked again.
func mostWanted(job *v2alpha1.DIJob) int64 {
	if job.Spec.Preemptible && job.Spec.Elastic != nil {
		return int64(ptr.Deref(job.Spec.Elastic.MaxReplicas, 0))
	}
	return int64(job.Status.Replicas)
}

// taskReplicas returns what the spec says of a task; elastic.replicas wins.
func taskReplicas(job *v2alpha1.DIJob, task, elastic int) int32 {
	if task == elastic && job.Spec.Elastic != nil && job.Spec.Elastic.Replicas != nil {
		return *job.Spec.Elastic.Replicas
	}
	return ptr.Deref(job.Spec.Tasks[task].Replicas, 1)
}

// profiled returns the patch that stores what a job reports of itself, exactly
// as it is given: a merge patch would drop its nulls.
func profiled(job *v2alpha1.DIJob, profilings json.RawMessage) (jobPatch, error) {
	type operation struct {
		Operation string `json:"op"`
		Path      string `json:"path"`
		Value     any    `json:"value"`
	}
	store := operation{"add", "/status/profilings", profilings}
	if isEmpty(&job.Status) {
		// There may be no status yet to add to.
		store = operation{"add", "/status", map[string]any{"profilings": profilings}}
	}
	// Another resourceVersion than the job has is a conflict.
	lock := operation{"replace", "/metadata/resourceVersion", job.ResourceVersion}
	content, err := json.Marshal([]operation{lock, store})
	if err != nil {
		return jobPatch{}, fmt.Errorf("encoding the patch of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return jobPatch{"status", client.RawPatch(types.JSONPatchType, content)}, nil
}

func isEmpty(status *v2alpha1.DIJobStatus) bool {
	return equality.Semantic.DeepEqual(status, &v2alpha1.DIJobStatus{})
}
