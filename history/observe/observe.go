// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
)

// Observation is what was observed of one job. Nothing in it is changed.
type Observation struct {
	Job *v2alpha1.DIJob
	// Pods are those of the job.
	Pods []corev1.Pod
	// Membership is that of a coordinator-led job, nil for none.
	Membership *v2alpha1.Membership
	// Plans are the ScalePlans of the job.
	Plans []v2alpha1.ScalePlan
	// Used is the highest usage of a replica since the last observation, by task.
	Used map[string]record.Peak
	// Events are those since the last observation.
	Events []record.Event
	// Redact is what is removed from messages.
	Redact record.Redaction
	// GPU is the resource of GPUs.
	GPU corev1.ResourceName
	Now time.Time
}

// Record returns what is remembered after an observation. before is what was recorded earlier of the
// same job; its zero value stands for nothing.
func Record(before record.Job, seen Observation) (record.Job, error) {
	job := seen.Job
	after := copied(before)
	after.UID, after.Namespace, after.Name = string(job.UID), job.Namespace, job.Name
	after.Group, after.Created = job.Spec.Group, utc(job.CreationTimestamp)
	after.Queue, after.Curve = queueing.Named(job), cmp.Or(curveOf(job), before.Curve)
	after.Creator = job.Annotations[names.AnnotationCreator]
	if after.Version == "" || after.Seen.Generation != job.Generation || after.Requests == nil {
		if err := readSpec(&after, seen); err != nil {
			return before, err
		}
	}
	readPods(&after, seen)
	readConditions(&after, seen)
	readPhase(&after, seen)
	readRestarts(&after, seen)
	readDesired(&after, seen)
	readPlacement(&after, seen)
	readPlans(&after, seen)
	readPeaks(&after, seen)
	readEvents(&after, seen)
	after.Seen.Generation = job.Generation
	// A bound might cut what is redacted.
	return record.Bound(seen.Redact.Job(after)), nil
}

// copied returns a copy whose lists and maps may be changed.
func copied(job record.Job) record.Job {
	job.Phases, job.Attempts, job.Replicas = slices.Clone(job.Phases), slices.Clone(job.Attempts), slices.Clone(job.Replicas)
	job.Plans = slices.Clone(job.Plans)
	job.Seen.ReplicaRestarts, job.Seen.Desired = maps.Clone(job.Seen.ReplicaRestarts), maps.Clone(job.Seen.Desired)
	return job
}

// Gone returns what is remembered of a job whose object was deleted. seen is false if that happened
// while nothing was recorded, so that its end is not known.
func Gone(before record.Job, seen bool, now time.Time) record.Job {
	if before.HasEnded() {
		return before
	}
	after := copied(before)
	after.Ended, after.Deleted, after.Unseen = now.UTC(), seen, !seen
	for i := range after.Replicas {
		if replica := &after.Replicas[i]; replica.Ended.IsZero() {
			replica.Ended, replica.Reason = now.UTC(), cmp.Or(replica.Reason, reasonGone)
		}
	}
	endAttempt(&after, now)
	return after
}

func endAttempt(job *record.Job, at time.Time) {
	if last := len(job.Attempts) - 1; last >= 0 && job.Attempts[last].Ended.IsZero() {
		job.Attempts[last].Ended = at.UTC()
	}
}

// readPhase notes the phase of the job, and its end.
func readPhase(job *record.Job, seen Observation) {
	status := &seen.Job.Status
	if phase := string(status.Phase); phase != "" && phase != job.Phase {
		job.Phase = phase
		job.Phases = append(job.Phases, record.Phase{Phase: phase, Since: sincePhase(status, seen.Now)})
	}
	for _, replica := range job.Replicas {
		if !replica.Started.IsZero() && (job.Started.IsZero() || replica.Started.Before(job.Started)) {
			job.Started = replica.Started
		}
	}
	isFinished := status.Phase == v2alpha1.JobSucceeded || status.Phase == v2alpha1.JobFailed
	if !isFinished || job.HasEnded() && !job.Unseen && !job.Deleted {
		return
	}
	job.Ended, job.Unseen, job.Deleted = sincePhase(status, seen.Now), false, false
	if condition := find(status.Conditions, string(status.Phase)); condition != nil {
		job.Reason, job.Message = condition.Reason, condition.Message
	}
	if failure := status.LastFailure; failure != nil && status.Phase == v2alpha1.JobFailed {
		job.Reason = cmp.Or(failure.Reason, job.Reason)
		job.Message = cmp.Or(job.Message, failure.Message)
	}
	endAttempt(job, job.Ended)
}

// sincePhase returns when the current phase began, as the job says it.
func sincePhase(status *v2alpha1.DIJobStatus, now time.Time) time.Time {
	if end := status.CompletionTimestamp; end != nil {
		return utc(*end)
	}
	if condition := find(status.Conditions, string(status.Phase)); condition != nil && condition.LastTransitionTime != nil {
		return utc(*condition.LastTransitionTime)
	}
	return now.UTC()
}

func find(conditions []v2alpha1.DIJobCondition, kind string) *v2alpha1.DIJobCondition {
	for i := range conditions {
		if conditions[i].Type == kind && conditions[i].Status == corev1.ConditionTrue {
			return &conditions[i]
		}
	}
	return nil
}

// readConditions notes each condition whose status or reason has changed.
func readConditions(job *record.Job, seen Observation) {
	last := map[string]record.Condition{}
	for _, condition := range job.Conditions {
		last[condition.Type] = condition
	}
	for _, condition := range seen.Job.Status.Conditions {
		known := last[condition.Type]
		if known.Status == string(condition.Status) && known.Reason == condition.Reason {
			continue
		}
		changed := record.Condition{
			Type: condition.Type, Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message,
			At: seen.Now.UTC(),
		}
		if at := cmp.Or(condition.LastTransitionTime, condition.LastUpdateTime); at != nil {
			changed.At = utc(*at)
		}
		job.Conditions = append(job.Conditions[:len(job.Conditions):len(job.Conditions)], changed)
	}
}

// readPlacement notes the nodes that the allocator chose.
func readPlacement(job *record.Job, seen Observation) {
	nodes := seen.Job.Status.Allocation
	nodes = nodes[:min(len(nodes), record.MaxNodes)]
	last := len(job.Placements) - 1
	if last < 0 && len(nodes) == 0 || last >= 0 && slices.Equal(job.Placements[last].Nodes, nodes) {
		return
	}
	job.Placements = append(job.Placements[:last+1:last+1], record.Placement{At: seen.Now.UTC(), Nodes: slices.Clone(nodes)})
}

// readPlans notes the ScalePlans, which may be deleted before the job.
func readPlans(job *record.Job, seen Observation) {
	known := map[string]int{}
	for i, plan := range job.Plans {
		known[plan.UID] = i
	}
	for i := range seen.Plans {
		plan := planOf(&seen.Plans[i])
		if at, exists := known[plan.UID]; exists {
			job.Plans[at] = plan
			continue
		}
		// Those that were dropped to make room would come back each time.
		if job.Dropped["plans"] == 0 || plan.Created.After(job.Plans[len(known)-1].Created) {
			job.Plans = append(job.Plans, plan)
		}
	}
	slices.SortStableFunc(job.Plans, func(a, b record.Plan) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
}

func planOf(plan *v2alpha1.ScalePlan) record.Plan {
	of := record.Plan{
		UID: string(plan.UID), Name: plan.Name, Origin: string(plan.Spec.Origin), Reason: plan.Spec.Reason,
		Phase: string(plan.Status.Phase), Message: plan.Status.Message, Created: utc(plan.CreationTimestamp),
		Started: utcOf(plan.Status.StartTime), Ended: utcOf(plan.Status.CompletionTime),
	}
	for _, task := range plan.Spec.Tasks {
		if task.Replicas != nil {
			if of.Replicas == nil {
				of.Replicas = map[string]int32{}
			}
			of.Replicas[task.Name] = *task.Replicas
		}
	}
	return of
}

func utc(at metav1.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return at.UTC()
}

func utcOf(at *metav1.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return utc(*at)
}
