// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// reschedule restarts all replicas for one of four causes: the allocator has changed the placement,
// a resize requires it, the replicas must queue again, or pods have an outdated cluster spec. The
// first three follow from a comparison with the recorded status. Only the last inspects pods,
// because pods of this attempt may still be missing from the cache.
func (p *Plan) reschedule() state.Result {
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
func (p *Plan) whyRescheduled() string {
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

// whyRestarted describes the resize that restarts all replicas, "" if none does. The status
// determines which pods belong to the current attempt.
func (f *facts) whyRestarted(status *v2alpha1.DIJobStatus) string {
	if why := sizing.WhyRestarted(f.in.Job, f.resizes); why != "" || !f.changesFirstGroup(status) {
		return why
	}
	return "Kueue admits all replicas together"
}

// isClusterOutdated reports whether an active pod of this attempt has another cluster spec than a
// new pod would get. The record of a resize was lost, or spec.clusterSpec was changed. Pods of an
// attempt that is not recorded yet do not count.
func (p *Plan) isClusterOutdated() bool {
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
func (p *Plan) whyMoved(recorded string) string {
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
func (p *Plan) isResizedLive() bool {
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
func (p *Plan) isKeptInPlace(change int32) bool {
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
func (p *Plan) runsElsewhere() bool {
	wasPlaced := slices.ContainsFunc(p.out.Current(), func(pod *corev1.Pod) bool { return PlacedOn(pod) != "" })
	return slices.ContainsFunc(p.out.Current(), func(pod *corev1.Pod) bool {
		runs := podstate.Active(pod) && pod.Spec.NodeName != ""
		isOurs := wasPlaced || !workload.IsOfEarlierRelease(pod)
		return (wasPlaced || runs) && isElsewhere(p.in.Job, pod) || isOurs && !p.facts.isRankedInOrder(pod)
	})
}

// isRankedInOrder reports whether a pod has the rank that its replica gets in the order
// of the spec.
func (f *facts) isRankedInOrder(pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	for i, count := range f.counts.ByTask {
		index, isOf := ranks.IndexOf(f.in.Job.Name, names.TaskName(&f.in.Job.Spec.Tasks[i]), pod.Name)
		if isOf {
			return index == rank && index < count
		}
		rank -= count
	}
	return false
}

// isElsewhere reports whether a pod is on another node than the allocation gives its
// rank, or was created for another node.
func isElsewhere(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	rank, allocation := podstate.Rank(pod), job.Status.Allocation
	return rank < 0 || int(rank) >= len(allocation) || allocation[rank] != cmp.Or(pod.Spec.NodeName, PlacedOn(pod))
}

// digestOf returns a digest of an allocation, "" for none.
func digestOf(allocation []string) string {
	if len(allocation) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(allocation, ",")))
	return hex.EncodeToString(sum[:8])
}

// reportResizes records one event for all tasks that were resized.
func (p *Plan) reportResizes() {
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
func (p *Plan) reportLiveResize() {
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

// endResize clears the condition of a resize once exactly the desired pods exist and are
// ready.
func (o *outcome) endResize() {
	const condition = v2alpha1.ConditionResizing
	if o.out.IsTrue(condition) && (state.IsFinished(o.out.Status()) || state.IsSuspended(o.in.Job) || o.hasNoExcess() && o.isAllReady()) {
		o.out.ClearCondition(condition)
	}
}

// hasNoExcess reports whether every pod belongs to a desired replica.
func (o *outcome) hasNoExcess() bool {
	desired := make(map[string]bool, len(o.ranked.assignment.Replicas))
	for i := range o.ranked.assignment.Replicas {
		desired[o.ranked.assignment.Replicas[i].Pod] = true
	}
	return !slices.ContainsFunc(o.in.Pods, func(pod *corev1.Pod) bool { return !desired[pod.Name] })
}

// nameElastic writes the elastic task and its count into the spec of a job that was stored before
// the webhook did so. Without them the API server cannot serve the scale subresource.
func (p *Plan) nameElastic() state.Result {
	elastic := names.ElasticTask(&p.in.Job.Spec)
	written := ptr.Deref(p.in.Job.Spec.Elastic, v2alpha1.Elastic{})
	if elastic < 0 || written.Replicas != nil && written.Task != "" || state.IsFinished(&p.in.Job.Status) {
		return state.Continue
	}
	written.Task = names.TaskName(&p.in.Job.Spec.Tasks[elastic])
	written.Replicas = ptr.To(sizing.Count(p.in.Job, elastic))
	p.out.Decision.Elastic = &written
	return state.Continue
}
