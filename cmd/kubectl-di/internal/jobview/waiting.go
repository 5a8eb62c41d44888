// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/queueing"
)

// Waiting is why a job does not run as desired, and what would let it.
type Waiting struct {
	Why      string
	Since    *time.Time
	Remedies []string
	// IsForRoom is set if the job waits in line for nodes or for quota, and for nothing that someone must correct.
	IsForRoom bool
}

// WaitingOf returns why a job that requests these GPUs does not run as desired; nil if it does, if it has finished, or if it
// is being deleted.
func WaitingOf(job *v2alpha1.DIJob, gpus int64) *Waiting {
	if replicas.IsFinished(job) || job.DeletionTimestamp != nil {
		return nil
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		waiting := &Waiting{Why: "The job is suspended.", Remedies: []string{"Resume the job."}}
		if condition := conditions.Find(&job.Status, v2alpha1.ConditionSuspended); condition != nil {
			waiting.Since = timeOf(condition.LastTransitionTime)
		}
		return waiting
	}
	if blocking := blocking(job); len(blocking) > 0 {
		return waitingFor(job, gpus, blocking)
	}
	switch {
	case names.OtherManager(&job.Spec) != "":
		return &Waiting{
			Why:      fmt.Sprintf("Controller %s runs this job, and not DI Orchestrator.", names.OtherManager(&job.Spec)),
			Remedies: []string{"Look at that controller, or create the job without spec.managedBy."},
		}
	case job.Status.Phase == "" || job.Status.ObservedGeneration == 0 && job.Status.Phase == v2alpha1.JobPending:
		return &Waiting{Why: "The operator has not observed the job.", Remedies: []string{"Check that the operator runs: kubectl di version."}}
	case job.Status.Phase == v2alpha1.JobPending:
		return &Waiting{Why: "The job has no pods yet."}
	}
	return nil
}

// waitingFor returns what the first of these conditions says, and what would end each of them.
func waitingFor(job *v2alpha1.DIJob, gpus int64, blocking []*v2alpha1.DIJobCondition) *Waiting {
	first := blocking[0]
	waiting := &Waiting{Why: cmp.Or(first.Message, first.Reason, first.Type), Since: timeOf(first.LastTransitionTime), IsForRoom: isForRoom(first.Reason)}
	for _, condition := range blocking {
		for _, text := range ofCondition(job, gpus, condition) {
			if !slices.Contains(waiting.Remedies, text) {
				waiting.Remedies = append(waiting.Remedies, text)
			}
		}
	}
	return waiting
}

// isForRoom reports whether a job that waits for this reason continues once others make room.
func isForRoom(reason string) bool {
	return slices.Contains([]string{v2alpha1.ReasonInsufficientCapacity, v2alpha1.ReasonWaitingInQueue, v2alpha1.ReasonUnschedulable}, reason)
}

// ofCondition returns what would end a condition.
func ofCondition(job *v2alpha1.DIJob, gpus int64, condition *v2alpha1.DIJobCondition) []string {
	switch condition.Reason {
	case v2alpha1.ReasonInsufficientCapacity:
		return append(capacity(job, gpus), ofCause(condition.Reason, condition.Message)...)
	case v2alpha1.ReasonNoAllocator:
		return []string{"Run the operator with its allocator, or create the job with spec.preemptible false."}
	case v2alpha1.ReasonWaitingInQueue:
		return []string{fmt.Sprintf("Quota of queue %s becomes free when other jobs of it end, or an administrator raises it.", queueing.Named(job))}
	case v2alpha1.ReasonNotManagedByKueue:
		return []string{"An administrator enables Kueue's integration of pods for this namespace."}
	case v2alpha1.ReasonNoKueue:
		return []string{"An administrator installs Kueue, or the job drops its queue."}
	case v2alpha1.ReasonNoGangScheduler:
		return []string{"An administrator installs a gang scheduler, or the job drops spec.scheduling.gang."}
	case v2alpha1.ReasonUnschedulable:
		return unschedulable(job, gpus, condition.Message)
	}
	if texts := ofCause(condition.Reason, condition.Message); texts != nil {
		return texts
	}
	switch condition.Type {
	case v2alpha1.ConditionInvalidSpec:
		return []string{"Correct the spec: the message names the field."}
	case v2alpha1.ConditionNameConflict:
		return []string{"Delete or rename the object that has the name, or create the job under another name."}
	case v2alpha1.ConditionAggregatorConfigMissing:
		return []string{"Create the AggregatorConfig that the message names."}
	case v2alpha1.ConditionGangScheduled:
		return []string{fmt.Sprintf("All pods of the gang must fit at once. GPUs that the job requests: %d.", gpus)}
	}
	return nil
}

// insufficientDevice is what the scheduler says of extended resources, such as GPUs.
var insufficientDevice = regexp.MustCompile(`Insufficient [^ ,]+/`)

// unschedulable returns what lets a node take pods that fit none.
func unschedulable(job *v2alpha1.DIJob, gpus int64, message string) []string {
	texts := ofCause(v2alpha1.ReasonUnschedulable, message)
	switch {
	case insufficientDevice.MatchString(message):
		return append(capacity(job, gpus), texts...)
	case len(texts) == 0:
		return append(capacity(job, gpus), "Check node selectors, affinity and tolerations of the templates.")
	}
	return texts
}

// capacity returns what gives a job enough room.
func capacity(job *v2alpha1.DIJob, gpus int64) []string {
	texts := []string{"Other jobs end or shrink, or an administrator adds nodes."}
	if gpus > 0 {
		texts[0] = fmt.Sprintf("Other jobs end or shrink, or an administrator adds nodes. GPUs that the job requests: %d.", gpus)
	}
	if job.Spec.Preemptible && job.Spec.Elastic != nil {
		texts = append(texts, "A smaller spec.elastic.minReplicas lets the allocator start the job with fewer replicas.")
	}
	return texts
}
