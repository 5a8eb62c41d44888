// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// whyRequeued describes why all replicas must queue again, "" if they do not.
func (p *counting) whyRequeued() string {
	if p.in.Job.Spec.Preemptible {
		return ""
	}
	started := p.facts.startSize()
	for _, pod := range p.out.Current() {
		meta, isFirst := p.facts.inFirstGroup(pod)
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
	case p.in.Queued().Queue == "" || p.facts.counts.Total < 2 || !p.facts.recorded.IsEmpty():
		return ""
	case conditions.IsTrue(&p.in.Job.Status, v2alpha1.ConditionSuspended) && len(p.in.Pods) == 0:
		return "the job was resumed and queues again"
	case p.isDeserted():
		return "all replicas are gone, and the job queues again"
	}
	return ""
}

// isDeserted reports whether disruptions ended all pods of a job's start, so that its first group has
// finished.
func (p *counting) isDeserted() bool {
	if phase := p.in.Job.Status.Phase; phase != v2alpha1.JobStarting && phase != v2alpha1.JobRunning {
		return false
	}
	return !slices.ContainsFunc(p.out.Current(), func(pod *corev1.Pod) bool {
		isAdded := p.facts.grown.has(podstate.Rank(pod))
		return !isAdded && isInLine(pod) || pod.Status.Phase == corev1.PodSucceeded || state.HasFailed(p.in.Job, pod)
	})
}

// reschedule restarts all replicas for one of four causes: the allocator has changed the placement,
// a resize requires it, the replicas must queue again, or pods have an outdated cluster spec. The
// first three follow from a comparison with the recorded status. Only the last inspects pods,
// because pods of this attempt may still be missing from the cache.
func (p *counting) reschedule() state.Result {
	if state.IsFinished(&p.in.Job.Status) {
		return state.Continue
	}
	why := p.whyRescheduled()
	if why == "" {
		p.reportLiveResize()
		return state.Continue
	}
	attempts, scaling := p.out.Attempts(), p.out.Scaling()
	attempts.Reschedules = limits.Sum(attempts.Reschedules, 1)
	attempts.CompletedRanks, attempts.ReplicaRestarts = "", nil
	p.out.RecordAttempts(attempts)
	scaling.Ranks = nil
	p.out.RecordScaling(&scaling)
	if !state.IsSuspended(p.in.Job) {
		p.out.EnterPhase(v2alpha1.JobRescheduling, why)
	}
	return state.Continue
}

// whyRescheduled describes why all replicas restart, "" if they do not.
func (p *counting) whyRescheduled() string {
	recorded := ""
	if before := p.in.Job.Status.Scaling; before != nil {
		recorded = before.LastAllocation
	}
	if why := p.whyMoved(recorded); why != "" || state.IsSuspended(p.in.Job) {
		return why
	}
	if why := p.facts.whyRestarted(p.out.Status()); why != "" && len(p.facts.resizes) > 0 {
		former := p.facts.counts.Total
		for _, resize := range p.facts.resizes {
			former -= resize.To - resize.From
		}
		return fmt.Sprintf("resized from %d to %s; restarting all replicas (%s)", former, english.Plural(int(p.facts.counts.Total), "replica", ""), why)
	}
	if p.isClusterOutdated() {
		return "the pods have an outdated cluster spec; restarting all replicas"
	}
	if why := p.whyResourcesRestart(); why != "" {
		return why
	}
	return p.whyRequeued()
}

// isClusterOutdated reports whether an active pod of this attempt has another cluster spec than a
// new pod would get. The record of a resize was lost, or spec.clusterSpec was changed. Pods of an
// attempt that is not recorded yet do not count.
func (p *counting) isClusterOutdated() bool {
	cluster := workload.DescribeCluster(&p.in.Job.Spec, p.facts.counts.ByTask)
	if cluster == "" || state.IsUnplaced(p.in.Job) {
		return false
	}
	return slices.ContainsFunc(p.in.Pods, func(pod *corev1.Pod) bool {
		isCurrent := podstate.Attempt(pod) == p.in.Job.Status.Restarts && podstate.Reschedule(pod) == p.in.Job.Status.Reschedules
		return isCurrent && !p.out.IsStale(pod) && podstate.Active(pod) && pod.Annotations[names.AnnotationCluster] != cluster
	})
}

// whyMoved describes why the placement of a job differs from the recorded one, "" if it does not. A
// suspended job gives up its placement and has no pods to restart. It keeps its completed ranks as
// long as they belong to the same replicas.
func (p *counting) whyMoved(recorded string) string {
	allocation := p.in.Job.Status.Allocation
	lives := func(pod *corev1.Pod) bool { return PlacedOn(pod) != "" && !podstate.Terminating(pod) }
	// The placement may be lost before it was recorded.
	isLost := state.IsUnplaced(p.in.Job) && (recorded != "" || slices.ContainsFunc(p.out.Current(), lives))
	switch {
	case !p.in.Job.Spec.Preemptible || recorded == digestOf(allocation) && !isLost:
		return ""
	case state.IsSuspended(p.in.Job) && !p.facts.isCompletedByOther():
		return ""
	case isLost:
		return "the job lost its placement and waits for another"
	case recorded != "" && p.isResizedLive():
		return ""
	case recorded != "" || p.facts.isCompletedByOther() || p.runsElsewhere():
		return "the job has a new placement of " + english.Plural(len(allocation), "replica", "")
	}
	return ""
}

// isResizedLive reports whether a new placement only adds or removes replicas of the elastic task,
// and the job asks explicitly for the others to continue. Without that request they restart: their
// lists of peers are of the former size.
func (p *counting) isResizedLive() bool {
	job, before := p.in.Job, p.in.Job.Status.Scaling
	switch {
	case before == nil, job.Spec.Elastic == nil, job.Spec.Elastic.OnResize != v2alpha1.OnResizeContinue:
		return false
	case before.LastReplicas == p.facts.counts.Total, !maps.Equal(before.SpecReplicas, p.facts.counts.Spec):
		return false
	}
	return p.facts.whyRestarted(p.out.Status()) == "" && !p.facts.isCompletedByOther() && p.isKeptInPlace(p.facts.counts.Total-before.LastReplicas)
}

// isKeptInPlace reports whether each replica that the elastic task's change leaves has its rank and its
// node in the new placement, or has succeeded. A pod that is missing may only be missing from the
// cache, on its former node.
func (p *counting) isKeptInPlace(change int32) bool {
	var first int32
	elastic := names.ElasticTask(&p.in.Job.Spec)
	for task, count := range p.facts.counts.ByTask {
		kept := count
		if task == elastic {
			kept = min(count, count-change)
		}
		for index := range kept {
			rank := first + index
			pod := p.in.PodNamed[names.WorkerPod(p.in.Job.Name, names.TaskName(&p.in.Job.Spec.Tasks[task]), index)]
			isThere := pod != nil && !p.out.IsStale(pod) && !podstate.Terminating(pod) && podstate.Rank(pod) == rank && !isElsewhere(p.in.Job, pod)
			if !isThere && !p.facts.recorded.Has(rank) {
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
func (p *counting) runsElsewhere() bool {
	wasPlaced := slices.ContainsFunc(p.out.Current(), func(pod *corev1.Pod) bool { return PlacedOn(pod) != "" })
	return slices.ContainsFunc(p.out.Current(), func(pod *corev1.Pod) bool {
		runs := podstate.Active(pod) && pod.Spec.NodeName != ""
		isOurs := wasPlaced || !workload.IsOfEarlierRelease(pod)
		return (wasPlaced || runs) && isElsewhere(p.in.Job, pod) || isOurs && !p.facts.isRankedInOrder(pod)
	})
}

// reportResizes records one event for all tasks that were resized.
func (p *counting) reportResizes() {
	texts := make([]string, len(p.facts.resizes))
	for i, resize := range p.facts.resizes {
		texts[i] = resize.Describe(p.in.Job, &p.facts.counts)
	}
	if len(texts) == 0 {
		return
	}
	message := state.Few(texts, "; ")
	p.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonResized, message)
	if len(p.in.Pods) > 0 && p.facts.whyRestarted(p.out.Status()) == "" && !state.IsSuspended(p.in.Job) {
		p.out.RecordCondition(v2alpha1.ConditionResizing, corev1.ConditionTrue, v2alpha1.ReasonResized, message)
	}
}

// reportLiveResize records the event of a new placement that lets replicas continue.
func (p *counting) reportLiveResize() {
	before := p.in.Job.Status.Scaling
	if !p.in.Job.Spec.Preemptible || state.IsUnplaced(p.in.Job) || state.IsSuspended(p.in.Job) || before == nil || before.LastAllocation == "" ||
		before.LastAllocation == digestOf(p.in.Job.Status.Allocation) || !p.isResizedLive() {
		return
	}
	elastic := names.ElasticTask(&p.in.Job.Spec)
	count := p.facts.counts.ByTask[elastic]
	message := fmt.Sprintf("%d -> %s of task %s, by the allocator", count-p.facts.counts.Total+before.LastReplicas, english.Plural(int(count), "replica", ""), names.TaskName(&p.in.Job.Spec.Tasks[elastic]))
	p.out.Event(corev1.EventTypeNormal, v2alpha1.ReasonResized, message)
	p.out.RecordCondition(v2alpha1.ConditionResizing, corev1.ConditionTrue, v2alpha1.ReasonResized, message)
}

// whyResourcesRestart describes a change of resources that restarts all replicas, "" if none does.
// A replica that gets more memory restarts the others if its failure does. Replicas that Kueue
// admitted together also queue together for other resources.
func (p *counting) whyResourcesRestart() string {
	isGrouped := p.facts.isGrouped(p.out.Status())
	for _, pod := range p.out.Current() {
		replica, isKnown := p.facts.replicaOf(pod.Name)
		if !isKnown || podstate.Terminating(pod) || replica.Index >= p.facts.counts.ByTask[replica.Task] {
			continue
		}
		action, _ := actionFor(p.in.Job, &replica, pod)
		sized := p.facts.sized(&replica)
		switch {
		case p.facts.hasGrown(p.sizes, &replica, pod):
			if isGrouped || action == v2alpha1.FailurePolicyRestartJob {
				return fmt.Sprintf("pod %s was out of memory and gets more; restarting all replicas", pod.Name)
			}
		case isGrouped && podstate.Active(pod) && p.sizes.MustChange(&sized):
			return fmt.Sprintf("pod %s gets other resources; restarting all replicas (Kueue admits them together)", pod.Name)
		}
	}
	return ""
}
