// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package counts

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/workload"
)

// reschedule restarts all replicas for one of four causes: the allocator has changed the placement,
// a resize requires it, the replicas must queue again, or pods have an outdated cluster spec. The
// first three follow from a comparison with the recorded status. Only the last inspects pods,
// because pods of this attempt may still be missing from the cache.
func (c *Stage) reschedule() state.Result {
	if state.IsFinished(&c.in.Job.Status) {
		return state.Continue
	}
	why := c.whyRescheduled()
	if why == "" {
		c.reportLiveResize()
		return state.Continue
	}
	attempts, scaling := c.out.Attempts(), c.out.Scaling()
	attempts.Reschedules = limits.Sum(attempts.Reschedules, 1)
	attempts.CompletedRanks, attempts.ReplicaRestarts = "", nil
	c.out.RecordAttempts(attempts)
	scaling.Ranks = nil
	c.out.RecordScaling(&scaling)
	if !state.IsSuspended(c.in.Job) {
		c.out.EnterPhase(v2alpha1.JobRescheduling, why)
	}
	return state.Continue
}

// whyRescheduled describes why all replicas restart, "" if they do not.
func (c *Stage) whyRescheduled() string {
	recorded := ""
	if before := c.in.Job.Status.Scaling; before != nil {
		recorded = before.LastAllocation
	}
	if why := c.whyMoved(recorded); why != "" || state.IsSuspended(c.in.Job) {
		return why
	}
	if why := c.facts.WhyRestarted(c.out.Status()); why != "" && len(c.facts.Resizes) > 0 {
		former := c.facts.Counts.Total
		for _, resize := range c.facts.Resizes {
			former -= resize.To - resize.From
		}
		return fmt.Sprintf("resized from %d to %s; restarting all replicas (%s)", former, english.Plural(int(c.facts.Counts.Total), "replica", ""), why)
	}
	if c.isClusterOutdated() {
		return "the pods have an outdated cluster spec; restarting all replicas"
	}
	if why := c.whyResourcesRestart(); why != "" {
		return why
	}
	return c.whyRequeued()
}

// whyRequeued describes why all replicas must queue again, "" if they do not.
func (c *Stage) whyRequeued() string {
	if c.in.Job.Spec.Preemptible {
		return ""
	}
	started := c.facts.StartSize()
	for _, pod := range c.out.Current() {
		meta, isFirst := groups.InFirst(c.in.Job, pod)
		message, evicted := queueing.Eviction(pod)
		switch {
		case isFirst && evicted:
			return "Kueue evicted the job, which queues again: " + message
		case isFirst && meta.Size != int(started):
			// The job was resized while it was suspended, and some of its pods are left.
			return fmt.Sprintf("the job has %s, but queues for %d", english.Plural(int(started), "replica", ""), meta.Size)
		}
	}
	switch {
	case c.in.Queued().Queue == "" || c.facts.Counts.Total < 2 || !c.facts.Recorded.IsEmpty():
		return ""
	case conditions.IsTrue(&c.in.Job.Status, v2alpha1.ConditionSuspended) && len(c.in.Pods) == 0:
		return "the job was resumed and queues again"
	case c.isDeserted():
		return "all replicas are gone, and the job queues again"
	}
	return ""
}

// isDeserted reports whether disruptions ended all pods of a job's start, so that its first group has
// finished.
func (c *Stage) isDeserted() bool {
	if phase := c.in.Job.Status.Phase; phase != v2alpha1.JobStarting && phase != v2alpha1.JobRunning {
		return false
	}
	return !slices.ContainsFunc(c.out.Current(), func(pod *corev1.Pod) bool {
		isAdded := c.facts.Grown.Has(podstate.Rank(pod))
		return !isAdded && queueing.IsInLine(pod) || pod.Status.Phase == corev1.PodSucceeded || state.HasFailed(c.in.Job, pod)
	})
}

// isClusterOutdated reports whether an active pod of this attempt has another cluster spec than a
// new pod would get. The record of a resize was lost, or spec.clusterSpec was changed. Pods of an
// attempt that is not recorded yet do not count.
func (c *Stage) isClusterOutdated() bool {
	cluster := workload.DescribeCluster(&c.in.Job.Spec, c.facts.Counts.ByTask)
	if cluster == "" || state.IsUnplaced(c.in.Job) {
		return false
	}
	return slices.ContainsFunc(c.in.Pods, func(pod *corev1.Pod) bool {
		isCurrent := podstate.Attempt(pod) == c.in.Job.Status.Restarts && podstate.Reschedule(pod) == c.in.Job.Status.Reschedules
		return isCurrent && !c.out.IsStale(pod) && podstate.Active(pod) && pod.Annotations[names.AnnotationCluster] != cluster
	})
}

// whyMoved describes why the placement of a job differs from the recorded one, "" if it does not. A
// suspended job gives up its placement and has no pods to restart. It keeps its completed ranks as
// long as they belong to the same replicas.
func (c *Stage) whyMoved(recorded string) string {
	allocation := c.in.Job.Status.Allocation
	lives := func(pod *corev1.Pod) bool { return placements.PlacedOn(pod) != "" && !podstate.Terminating(pod) }
	// The placement may be lost before it was recorded.
	isLost := state.IsUnplaced(c.in.Job) && (recorded != "" || slices.ContainsFunc(c.out.Current(), lives))
	switch {
	case !c.in.Job.Spec.Preemptible || recorded == placements.DigestOf(allocation) && !isLost:
		return ""
	case state.IsSuspended(c.in.Job) && !c.facts.IsCompletedByOther():
		return ""
	case isLost:
		return "the job lost its placement and waits for another"
	case recorded != "" && c.isResizedLive():
		return ""
	case recorded != "" || c.facts.IsCompletedByOther() || c.runsElsewhere():
		return "the job has a new placement of " + english.Plural(len(allocation), "replica", "")
	}
	return ""
}

// isResizedLive reports whether a new placement only adds or removes replicas of the elastic task,
// and the job asks explicitly for the others to continue. Without that request they restart: their
// lists of peers are of the former size.
func (c *Stage) isResizedLive() bool {
	job, before := c.in.Job, c.in.Job.Status.Scaling
	switch {
	case before == nil, job.Spec.Elastic == nil, job.Spec.Elastic.OnResize != v2alpha1.OnResizeContinue:
		return false
	case before.LastReplicas == c.facts.Counts.Total, !maps.Equal(before.SpecReplicas, c.facts.Counts.Spec):
		return false
	}
	return c.facts.WhyRestarted(c.out.Status()) == "" && !c.facts.IsCompletedByOther() && c.isKeptInPlace(c.facts.Counts.Total-before.LastReplicas)
}

// isKeptInPlace reports whether each replica that the elastic task's change leaves has its rank and its
// node in the new placement, or has succeeded. A pod that is missing may only be missing from the
// cache, on its former node.
func (c *Stage) isKeptInPlace(change int32) bool {
	var first int32
	elastic := names.ElasticTask(&c.in.Job.Spec)
	for task, count := range c.facts.Counts.ByTask {
		kept := count
		if task == elastic {
			kept = min(count, count-change)
		}
		for index := range kept {
			rank := first + index
			pod := c.in.PodNamed[names.WorkerPod(c.in.Job.Name, names.TaskName(&c.in.Job.Spec.Tasks[task]), index)]
			isThere := pod != nil && !c.out.IsStale(pod) && !podstate.Terminating(pod) && podstate.Rank(pod) == rank && !placements.IsElsewhere(c.in.Job, pod)
			if !isThere && !c.facts.Recorded.Has(rank) {
				return false
			}
		}
		first += count
	}
	return true
}

// runsElsewhere reports whether pods of a job without a recorded placement are on other nodes than
// its allocation. Such a job was never placed, for example by an earlier release, or lost its
// placement before that was recorded. All its pods count then, terminating ones as well, and so do
// their ranks. Otherwise new pods would get the ranks that these leave instead of the ranks that
// the allocator assumes.
func (c *Stage) runsElsewhere() bool {
	wasPlaced := slices.ContainsFunc(c.out.Current(), func(pod *corev1.Pod) bool { return placements.PlacedOn(pod) != "" })
	return slices.ContainsFunc(c.out.Current(), func(pod *corev1.Pod) bool {
		runs := podstate.Active(pod) && pod.Spec.NodeName != ""
		isOurs := wasPlaced || !workload.IsOfEarlierRelease(pod)
		return (wasPlaced || runs) && placements.IsElsewhere(c.in.Job, pod) || isOurs && !c.facts.IsRankedInOrder(pod)
	})
}

// reportResizes records one event for all tasks that were resized.
func (c *Stage) reportResizes() {
	texts := make([]string, len(c.facts.Resizes))
	for i, resize := range c.facts.Resizes {
		texts[i] = resize.Describe(c.in.Job, &c.facts.Counts)
	}
	if len(texts) == 0 {
		return
	}
	message := state.Few(texts, "; ")
	c.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonResized, message)
	if len(c.in.Pods) > 0 && c.facts.WhyRestarted(c.out.Status()) == "" && !state.IsSuspended(c.in.Job) {
		c.out.RecordCondition(v2alpha1.ConditionResizing, corev1.ConditionTrue, v2alpha1.ReasonResized, message)
	}
}

// reportLiveResize records the event of a new placement that lets replicas continue.
func (c *Stage) reportLiveResize() {
	before := c.in.Job.Status.Scaling
	if !c.in.Job.Spec.Preemptible || state.IsUnplaced(c.in.Job) || state.IsSuspended(c.in.Job) || before == nil || before.LastAllocation == "" ||
		before.LastAllocation == placements.DigestOf(c.in.Job.Status.Allocation) || !c.isResizedLive() {
		return
	}
	elastic := names.ElasticTask(&c.in.Job.Spec)
	count := c.facts.Counts.ByTask[elastic]
	message := fmt.Sprintf("%d -> %s of task %s, by the allocator", count-c.facts.Counts.Total+before.LastReplicas, english.Plural(int(count), "replica", ""), names.TaskName(&c.in.Job.Spec.Tasks[elastic]))
	c.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonResized, message)
	c.out.RecordCondition(v2alpha1.ConditionResizing, corev1.ConditionTrue, v2alpha1.ReasonResized, message)
}

// whyResourcesRestart describes a change of resources that restarts all replicas, "" if none does.
// A replica that gets more memory restarts the others if its failure does. Replicas that Kueue
// admitted together also queue together for other resources.
func (c *Stage) whyResourcesRestart() string {
	isGrouped := groups.IsGrouped(c.in, c.out.Status())
	for _, pod := range c.out.Current() {
		replica, isKnown := identity.ReplicaOf(c.in.Job, pod.Name)
		if !isKnown || podstate.Terminating(pod) || replica.Index >= c.facts.Counts.ByTask[replica.Task] {
			continue
		}
		action, _ := policy.ActionFor(c.in.Job, &replica, pod)
		sized := identity.Sized(c.in, &replica)
		switch {
		case c.facts.HasGrown(c.sizes, &replica, pod):
			if isGrouped || action == v2alpha1.FailurePolicyRestartJob {
				return fmt.Sprintf("pod %s was out of memory and gets more; restarting all replicas", pod.Name)
			}
		case isGrouped && podstate.Active(pod) && c.sizes.MustChange(&sized):
			return fmt.Sprintf("pod %s gets other resources; restarting all replicas (Kueue admits them together)", pod.Name)
		}
	}
	return ""
}
