// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/failure"
)

// JobID identifies a job, as in the paths of the v2 protocol.
type JobID struct {
	// Key is the namespace and name of the job.
	Key types.NamespacedName
	// generation is the job's generation when the worker's pod was created; -1 if the path has none.
	generation int64
}

// IDOf returns the ID of a job of any generation.
func IDOf(key types.NamespacedName) JobID {
	return JobID{Key: key, generation: -1}
}

// ParseJobID parses namespace.name or namespace.name.generation. Names contain no dot.
func ParseJobID(text string) (JobID, error) {
	malformed := failure.New(failure.Invalid, "job_id %q must be namespace.name or namespace.name.generation", text)
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return JobID{}, malformed
	}
	id := IDOf(types.NamespacedName{Namespace: parts[0], Name: parts[1]})
	if len(parts) == 3 {
		generation, err := strconv.ParseUint(parts[2], 10, 31)
		if err != nil {
			return JobID{}, malformed.Because(err)
		}
		id.generation = int64(generation)
	}
	return id, nil
}

// CheckWorkerLed refuses coordinator-led jobs.
func (id JobID) CheckWorkerLed(job *v2alpha1.DIJob) error {
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		return failure.New(failure.Invalid, "job %q is coordinator-led: use /v1alpha1/replicas", id.Key)
	}
	return nil
}

// CheckCurrent refuses workers of an earlier generation, because they were replaced. A generation later
// than the one in the status is valid: its pods may run before the status is written.
func (id JobID) CheckCurrent(job *v2alpha1.DIJob) error {
	if now := names.Generation(&job.Status); id.generation >= 0 && id.generation < now {
		return failure.New(failure.Invalid, "generation %d of job %q is over, it is at %d", id.generation, id.Key, now)
	}
	return nil
}
