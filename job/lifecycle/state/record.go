// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Only the functions of this file write the planned status. Rules take a part of it as a value, change their
// copy and record that.

// Status returns the planned status, which only Record functions change; Job.Status is the recorded one.
func (p *Plan) Status() *v2alpha1.DIJobStatus {
	return &p.Decision.Status
}

// Attempts are the restarts of a job, and what has ended since.
type Attempts struct {
	// Restarts and Reschedules are how often all replicas restarted, for failures and for other causes.
	Restarts, Reschedules int32
	// ReplicaRestarts is how often replicas of this attempt restarted alone, by pod.
	ReplicaRestarts map[string]int32
	// CompletedRanks are the ranks of this attempt that have succeeded.
	CompletedRanks string
	// LastFailure is the failure that was last acted on; nil for none.
	LastFailure *v2alpha1.LastFailure
}

// Attempts returns the planned attempts.
func (p *Plan) Attempts() Attempts {
	return attemptsOf(p.Status())
}

func attemptsOf(status *v2alpha1.DIJobStatus) Attempts {
	return Attempts{
		Restarts: status.Restarts, Reschedules: status.Reschedules, ReplicaRestarts: status.ReplicaRestarts,
		CompletedRanks: status.CompletedRanks, LastFailure: status.LastFailure,
	}
}

// IsStale reports whether a pod belongs to an earlier attempt or placement.
func (a Attempts) IsStale(pod *corev1.Pod) bool {
	return podstate.PlausibleCount(podstate.Attempt(pod), a.Restarts) < a.Restarts ||
		podstate.PlausibleCount(podstate.Reschedule(pod), a.Reschedules) < a.Reschedules
}

// RecordAttempts records attempts.
func (p *Plan) RecordAttempts(attempts Attempts) {
	status := p.Status()
	status.Restarts, status.Reschedules, status.ReplicaRestarts = attempts.Restarts, attempts.Reschedules, attempts.ReplicaRestarts
	status.CompletedRanks, status.LastFailure = attempts.CompletedRanks, attempts.LastFailure
}

// RecordLastFailure records the failure that is acted on.
func (p *Plan) RecordLastFailure(failure *v2alpha1.LastFailure) {
	attempts := p.Attempts()
	attempts.LastFailure = failure
	p.RecordAttempts(attempts)
}

// Scaling returns the planned sizes, ranks and members; the zero value if none are planned.
func (p *Plan) Scaling() v2alpha1.ScalingStatus {
	if scaling := p.Status().Scaling; scaling != nil {
		return *scaling
	}
	return v2alpha1.ScalingStatus{}
}

// RecordScaling records sizes, ranks and members.
func (p *Plan) RecordScaling(scaling *v2alpha1.ScalingStatus) {
	p.Status().Scaling = scaling
}

// PodCounts are the numbers of a job's pods.
type PodCounts struct {
	// Replicas is the number of desired pods, Ready that of ready ones.
	Replicas, Ready int32
	// ByTask counts the pods of each task by phase.
	ByTask map[string]v2alpha1.TaskStatus
	// Elastic is the number of active pods of the elastic task, and Selector selects them.
	Elastic  int32
	Selector string
}

// PodCounts returns the planned numbers of pods.
func (p *Plan) PodCounts() PodCounts {
	status := p.Status()
	return PodCounts{
		Replicas: status.Replicas, Ready: status.ReadyReplicas, ByTask: status.TaskStatus,
		Elastic: status.ElasticReplicas, Selector: status.Selector,
	}
}

// RecordPodCounts records numbers of pods.
func (p *Plan) RecordPodCounts(counts PodCounts) {
	status := p.Status()
	status.Replicas, status.ReadyReplicas, status.TaskStatus = counts.Replicas, counts.Ready, counts.ByTask
	status.ElasticReplicas, status.Selector = counts.Elastic, counts.Selector
}

// RecordPhase records the phase, and when the job completed; nil if it has not.
func (p *Plan) RecordPhase(phase v2alpha1.Phase, completed *metav1.Time) {
	p.Status().Phase, p.Status().CompletionTimestamp = phase, completed
}

// RecordGeneration records that the decision follows from the job's generation.
func (p *Plan) RecordGeneration() {
	p.Status().ObservedGeneration = p.in.Job.Generation
}

// Condition returns a planned condition; nil if there is none.
func (p *Plan) Condition(kind string) *v2alpha1.DIJobCondition {
	return conditions.Find(p.Status(), kind)
}

// IsTrue reports whether a planned condition is True.
func (p *Plan) IsTrue(kind string) bool { return conditions.IsTrue(p.Status(), kind) }

// RecordCondition records a condition, and reports whether it changed.
func (p *Plan) RecordCondition(kind string, value corev1.ConditionStatus, reason, message string) bool {
	return conditions.Set(p.Status(), kind, value, reason, message, p.in.Now)
}

// ClearCondition sets a condition to False if it was ever set.
func (p *Plan) ClearCondition(kind string) { conditions.Clear(p.Status(), kind, p.in.Now) }

// RemoveCondition removes a condition.
func (p *Plan) RemoveCondition(kind string) { conditions.Remove(p.Status(), kind) }
