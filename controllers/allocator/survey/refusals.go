// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/podstate"
)

const (
	// refusalGrace is how long pods of a placement may be refused before the job gets a smaller one. Meanwhile the
	// pods of a former placement go.
	refusalGrace = 30 * time.Second
	// refusedFor is how long a job gets at most the replicas that the API server has admitted: each attempt restarts it.
	// stoppedFor is the same for a job that has stopped for it.
	refusedFor, stoppedFor = 30 * time.Minute, 5 * time.Minute
)

// refusals are the jobs whose pods the API server refused for a quota, although they were placed: another owner was
// faster, or the quota is one that the allocator cannot count. They are in memory, like exclusions.
type refusals map[types.UID]*refused

// refused is what the API server admits of a job. It is never changed.
type refused struct {
	bound allocation.Bound
	until time.Time
	// hard are the quotas of the time. Others may admit more.
	hard string
}

// longRefused returns why pods of a placement are refused, if that has been observed for refusalGrace; "" if not.
func longRefused(job *v2alpha1.DIJob, before, after Memory, now time.Time) string {
	since, why := RefusedSince(job)
	if why == "" || !isPlaced(job) {
		return ""
	}
	lasted := before.refused.observe(job.UID, since, now, after.refused)
	placed := before.placed.observe(job.UID, usage.PlacedAt(job), now, after.placed)
	if min(lasted, placed) <= refusalGrace {
		return ""
	}
	return why
}

// next returns what the API server admits of a job now, by why it refuses pods; nil if it refuses nothing.
func (r *refused) next(job *v2alpha1.DIJob, wanted *allocation.Job, pods []*corev1.Pod, found *Cluster, why string) *refused {
	hard := found.Admission.hard(job.Namespace)
	if r != nil && (r.hard != hard || !found.Now.Before(r.until)) {
		r = nil
	}
	if why == "" {
		return r
	}
	exist := 0
	for _, pod := range pods {
		if podstate.Active(pod) {
			exist++
		}
	}
	if exist >= len(job.Status.Allocation) {
		return r
	}
	until := found.Now.Add(refusedFor)
	if elastic, fits := wanted.ElasticOf(exist); !fits || elastic < wanted.Min {
		until = found.Now.Add(stoppedFor)
	}
	return &refused{allocation.Bound{Replicas: int32(exist), Why: why}, until, hard}
}

// RefusedSince returns since when pods of a job are refused for a quota, and the answer of the API server; "" if none is.
func RefusedSince(job *v2alpha1.DIJob) (time.Time, string) {
	stalled := conditions.Find(&job.Status, v2alpha1.ConditionReplicaFailure)
	if stalled == nil || stalled.Status != corev1.ConditionTrue || stalled.Reason != v2alpha1.ReasonQuotaExceeded {
		return time.Time{}, ""
	}
	since := job.CreationTimestamp.Time
	if stalled.LastTransitionTime != nil {
		since = stalled.LastTransitionTime.Time
	}
	return since, stalled.Message
}
