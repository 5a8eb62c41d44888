// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
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
	// relative says that the patch, made anew of what it left, changes it again.
	relative bool
}

// changed returns the patch that writes what becomes of the original.
func changed(original *v2alpha1.DIJob, subresource string) jobPatch {
	return jobPatch{subresource, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{}), true}
}

// resized returns the patch that makes a worker-led job want more replicas, or
// fewer: the total in its status, and of a preemptible job, whose total is the
// allocator's, the range that the allocator may use.
func resized(job *v2alpha1.DIJob, by int64) (jobPatch, error) {
	if err := writable(job); err != nil {
		return jobPatch{}, err
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 {
		return jobPatch{}, failure(KindInvalid,
			"job %s/%s has no task that can be resized: name one in spec.elastic.task", job.Namespace, job.Name)
	}
	original := job.DeepCopy()
	if job.Spec.Preemptible {
		return changed(original, ""), moveRange(job, elastic, by)
	}
	var err error
	job.Status.Replicas, err = moved(job, wantedReplicas(job, elastic), by)
	return changed(original, "status"), err
}

// moveRange moves the bounds of a job's elastic task. A job without bounds has
// the range of just its count.
func moveRange(job *v2alpha1.DIJob, task int, by int64) error {
	elastic := ptr.Deref(job.Spec.Elastic, v2alpha1.Elastic{Task: names.TaskName(&job.Spec.Tasks[task])})
	if elastic.MinReplicas == nil && elastic.MaxReplicas == nil {
		count := taskReplicas(job, task, task)
		elastic.MinReplicas, elastic.MaxReplicas = &count, &count
	}
	if elastic.MinReplicas != nil {
		elastic.MinReplicas = ptr.To(int32(min(max(int64(*elastic.MinReplicas)+by, 0), math.MaxInt32)))
	}
	if elastic.MaxReplicas != nil {
		most, err := moved(job, *elastic.MaxReplicas, by)
		if err != nil {
			return err
		}
		elastic.MaxReplicas = &most
	}
	job.Spec.Elastic = &elastic
	return nil
}

// moved returns a number of replicas and what is added to it.
func moved(job *v2alpha1.DIJob, replicas int32, by int64) (int32, error) {
	to := int64(replicas) + by
	if to < 1 || to > math.MaxInt32 {
		return 0, failure(KindInvalid, "replicas: %+d would leave job %s/%s with %d replicas", by, job.Namespace, job.Name, to)
	}
	return int32(to), nil
}

// wantedReplicas returns the total that is wanted now: what the status says,
// and before the operator has said it there, what the spec says.
func wantedReplicas(job *v2alpha1.DIJob, elastic int) int32 {
	if job.Status.Replicas > 0 {
		return job.Status.Replicas
	}
	var total int32
	for i := range job.Spec.Tasks {
		total += taskReplicas(job, i, elastic)
	}
	return total
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
	return jobPatch{"status", client.RawPatch(types.JSONPatchType, content), false}, nil
}

func isEmpty(status *v2alpha1.DIJobStatus) bool {
	return equality.Semantic.DeepEqual(status, &v2alpha1.DIJobStatus{})
}
