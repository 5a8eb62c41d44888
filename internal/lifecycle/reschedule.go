// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// reschedule starts all replicas anew where the allocator placed them otherwise
// than before, and where the job says that a resize does so. It compares with
// what was recorded of the last time, and not with the pods, which may be about
// to come.
func reschedule(p *pass) outcome {
	if IsFinished(&p.Job.Status) || IsSuspended(p.Job) {
		return goOn
	}
	if why := p.whyRescheduled(); why != "" {
		status := p.status()
		status.Reschedules++
		status.CompletedRanks, status.ReplicaRestarts = "", nil
		p.setPhase(v2alpha1.JobRescheduling, why)
	}
	return goOn
}

// whyRescheduled says why the replicas start anew, "" where they do not.
func (p *pass) whyRescheduled() string {
	before, now := p.Job.Status.Scaling, p.status().Scaling
	switch {
	case before == nil:
		return p.whyMoved("")
	case p.Job.Spec.Preemptible:
		return p.whyMoved(before.LastAllocation)
	case restartsOnResize(p.Job) && (before.LastReplicas != now.LastReplicas || !maps.Equal(before.SpecReplicas, now.SpecReplicas)):
		return fmt.Sprintf("the job is resized from %d to %d replicas, and all start anew as spec.elastic.onResize says", before.LastReplicas, now.LastReplicas)
	}
	return ""
}

// whyMoved says why a job that was placed as recorded is placed otherwise now.
func (p *pass) whyMoved(recorded string) string {
	allocation := p.Job.Status.Allocation
	switch {
	case !p.Job.Spec.Preemptible || recorded == digestOf(allocation):
		return ""
	case recorded != "" && len(allocation) == 0:
		return "the job has lost its place and waits for another"
	case recorded != "" || p.runsElsewhere():
		return fmt.Sprintf("the job is placed anew, with %d replicas", len(allocation))
	}
	return ""
}

// runsElsewhere tells whether pods of a job that was never placed before, such
// as one that an earlier release ran, are on other nodes than it is given now.
func (p *pass) runsElsewhere() bool {
	for _, pod := range p.Pods {
		rank := annotatedNumber(pod, names.AnnotationRank, unranked)
		if isTerminating(pod) || pod.Spec.NodeName == "" {
			continue
		}
		if allocation := p.Job.Status.Allocation; rank < 0 || int(rank) >= len(allocation) || allocation[rank] != pod.Spec.NodeName {
			return true
		}
	}
	return false
}

func restartsOnResize(job *v2alpha1.DIJob) bool {
	return job.Spec.Elastic != nil && job.Spec.Elastic.OnResize == v2alpha1.OnResizeRestart
}

// isUnplaced tells whether a job waits for the allocator to place it.
func isUnplaced(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && len(job.Status.Allocation) == 0
}

// digestOf returns what an allocation is remembered by, "" for none.
func digestOf(allocation []string) string {
	if len(allocation) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(allocation, ",")))
	return hex.EncodeToString(sum[:8])
}

// isStale tells whether a pod is of an earlier attempt, or of one that was
// placed otherwise.
func (p *pass) isStale(pod *corev1.Pod) bool {
	return attemptOf(pod) < p.status().Restarts || rescheduleOf(pod) < p.status().Reschedules
}

// rescheduleOf returns the count of reschedules that the pod was created with.
func rescheduleOf(pod *corev1.Pod) int32 {
	return annotatedNumber(pod, names.AnnotationReschedule, 0)
}

// WantsPlace tells whether a job is the allocator's to place.
func WantsPlace(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && !IsCoordinatorLed(job) && !IsLeftAlone(job) && !IsFinished(&job.Status) && !IsSuspended(job)
}

// NodesByRank returns where the pods of a job are, by rank, as far as they have
// a node; nil where any has none.
func NodesByRank(pods []*corev1.Pod) []string {
	nodes := make([]string, len(pods))
	for _, pod := range pods {
		rank := annotatedNumber(pod, names.AnnotationRank, unranked)
		if rank < 0 || int(rank) >= len(nodes) || nodes[rank] != "" || pod.Spec.NodeName == "" || isTerminating(pod) || isEnded(pod) {
			return nil
		}
		nodes[rank] = pod.Spec.NodeName
	}
	return nodes
}

// PlacedOn returns the node that a pod was made for, "" for none.
func PlacedOn(pod *corev1.Pod) string {
	return pod.Annotations[names.AnnotationNode]
}
