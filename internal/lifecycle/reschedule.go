// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// reschedule restarts all replicas if the allocator placed them elsewhere, a resize
// requires it, they must queue again, or pods know another cluster than spec.clusterSpec
// describes now. The first three causes are detected by comparing with the recorded
// status; only the last inspects pods, because pods of this attempt may still be missing
// from the cache.
func reschedule(p *plan) outcome {
	if IsFinished(&p.Job.Status) {
		return goOn
	}
	why := p.whyRescheduled()
	if why == "" {
		return goOn
	}
	status := p.status()
	status.Reschedules = limits.Sum(status.Reschedules, 1)
	status.CompletedRanks, status.ReplicaRestarts = "", nil
	status.Scaling.Ranks = nil
	if !IsSuspended(p.Job) {
		p.enterPhase(v2alpha1.JobRescheduling, why)
	}
	return goOn
}

// whyRescheduled describes why all replicas restart, "" if they do not.
func (p *plan) whyRescheduled() string {
	recorded := ""
	if before := p.Job.Status.Scaling; before != nil {
		recorded = before.LastAllocation
	}
	if why := p.whyMoved(recorded); why != "" || IsSuspended(p.Job) {
		return why
	}
	if why := p.whyRestarted(p.status()); why != "" && len(p.resizes) > 0 {
		former := p.counts.total
		for _, resize := range p.resizes {
			former -= resize.to - resize.from
		}
		return fmt.Sprintf("resized from %d to %d replicas; restarting all replicas (%s)", former, p.counts.total, why)
	}
	if p.isClusterOutdated() {
		return "the pods have an outdated cluster spec; restarting all replicas"
	}
	return p.whyRequeued()
}

// whyRestarted describes what makes a resize restart all replicas, "" if it does not.
// The status tells which pods are of the current attempt.
func (in *input) whyRestarted(status *v2alpha1.DIJobStatus) string {
	if why := whyRestarted(in.Job, in.resizes); why != "" || !in.isGrouped(status) {
		return why
	}
	return "Kueue admits all replicas together"
}

// isClusterOutdated reports whether an active pod of this attempt knows another cluster
// than a new pod would: the record of a resize was lost, or spec.clusterSpec was
// changed. Pods of an attempt that is not recorded yet do not count.
func (p *plan) isClusterOutdated() bool {
	cluster := workload.DescribeCluster(&p.Job.Spec, p.counts.byTask)
	if cluster == "" || isUnplaced(p.Job) {
		return false
	}
	return slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool {
		isCurrent := attemptOf(pod) == p.Job.Status.Restarts && rescheduleOf(pod) == p.Job.Status.Reschedules
		return isCurrent && !p.isStale(pod) && podstate.Active(pod) && pod.Annotations[names.AnnotationCluster] != cluster
	})
}

// whyMoved describes why a job is placed elsewhere than recorded, "" if it is not. A
// suspended job gives up its placement, has no pods to restart, and keeps its completed
// ranks as long as they belong to the same replicas.
func (p *plan) whyMoved(recorded string) string {
	allocation := p.Job.Status.Allocation
	lives := func(pod *corev1.Pod) bool { return PlacedOn(pod) != "" && !podstate.Terminating(pod) }
	// The place of pods may be lost before it was recorded.
	isLost := isUnplaced(p.Job) && (recorded != "" || slices.ContainsFunc(p.current(), lives))
	switch {
	case !p.Job.Spec.Preemptible || recorded == digestOf(allocation) && !isLost:
		return ""
	case IsSuspended(p.Job) && !p.isCompletedByOther():
		return ""
	case isLost:
		return "the job lost its placement and waits for another"
	case recorded != "" || p.isCompletedByOther() || p.runsElsewhere():
		return fmt.Sprintf("the job has a new placement of %d replicas", len(allocation))
	}
	return ""
}

// runsElsewhere reports whether pods of a job without a recorded placement are on other
// nodes than its allocation: it was never placed, for example by an earlier release, or
// lost its placement before that was recorded. Then all its pods count, terminating
// ones, too, and so do their ranks: new pods would otherwise get the ranks that these
// leave, and not those that the allocator assumes.
func (p *plan) runsElsewhere() bool {
	wasPlaced := slices.ContainsFunc(p.current(), func(pod *corev1.Pod) bool { return PlacedOn(pod) != "" })
	return slices.ContainsFunc(p.current(), func(pod *corev1.Pod) bool {
		runs := podstate.Active(pod) && pod.Spec.NodeName != ""
		isOurs := wasPlaced || !workload.IsOfEarlierRelease(pod)
		return (wasPlaced || runs) && isElsewhere(p.Job, pod) || isOurs && !p.isRankedInOrder(pod)
	})
}

// isRankedInOrder reports whether a pod has the rank that its replica gets in the order
// of the spec.
func (in *input) isRankedInOrder(pod *corev1.Pod) bool {
	rank := rankOf(pod)
	for i, count := range in.counts.byTask {
		index, isOf := indexOf(in.Job.Name, names.TaskName(&in.Job.Spec.Tasks[i]), pod.Name)
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
	rank, allocation := rankOf(pod), job.Status.Allocation
	return rank < 0 || int(rank) >= len(allocation) || allocation[rank] != cmp.Or(pod.Spec.NodeName, PlacedOn(pod))
}

// whyRestarted describes what makes resizes restart all replicas, "" if nothing does.
func whyRestarted(job *v2alpha1.DIJob, resizes []resize) string {
	switch {
	case job.Spec.Elastic != nil && job.Spec.Elastic.OnResize == v2alpha1.OnResizeRestart:
		return "spec.elastic.onResize: Restart"
	case slices.Contains(job.Spec.ClusterSpec, v2alpha1.ClusterSpecTorch):
		// The size of its world and the ranks in it are fixed while it runs.
		return "spec.clusterSpec: Torch"
	case names.HasDynamicWorkers(&job.Spec) && isOnlyElastic(job, resizes):
		// Only the worker itself reads its entry.
	case slices.Contains(job.Spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow):
		// Its cluster is fixed while it runs.
		return "spec.clusterSpec: TensorFlow"
	}
	return ""
}

// isOnlyElastic reports whether no task but the elastic one is resized.
func isOnlyElastic(job *v2alpha1.DIJob, resizes []resize) bool {
	task := names.TaskName(&job.Spec.Tasks[names.ElasticTask(&job.Spec)])
	return !slices.ContainsFunc(resizes, func(resize resize) bool { return resize.task != task })
}

// mayRestartOnResize reports whether a resize may restart all replicas.
func mayRestartOnResize(job *v2alpha1.DIJob) bool {
	return len(job.Spec.ClusterSpec) > 0 || whyRestarted(job, nil) != ""
}

// isUnplaced reports whether a job waits for the allocator to place it.
func isUnplaced(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && len(job.Status.Allocation) == 0
}

// reportPlace sets the condition for the placement while the operator's allocator, which
// owns that condition, is switched off.
func (p *plan) reportPlace() {
	if !p.NoAllocator || !WantsPlace(p.Job) {
		return
	}
	status := p.status()
	if placed := len(p.Job.Status.Allocation); placed > 0 {
		if !conditions.IsTrue(status, v2alpha1.ConditionAllocated) {
			conditions.Set(status, v2alpha1.ConditionAllocated, corev1.ConditionTrue, v2alpha1.ConditionAllocated,
				fmt.Sprintf("status.allocation places %d replicas", placed), p.Now)
		}
		return
	}
	const message = "the operator runs with --allocator=false: the job waits until another allocator writes status.allocation"
	if conditions.Set(status, v2alpha1.ConditionAllocated, corev1.ConditionFalse, v2alpha1.ReasonNoAllocator, message, p.Now) {
		p.event(corev1.EventTypeWarning, v2alpha1.ReasonNoAllocator, message)
	}
}

// digestOf returns a digest of an allocation, "" for none.
func digestOf(allocation []string) string {
	if len(allocation) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(allocation, ",")))
	return hex.EncodeToString(sum[:8])
}

// isStale reports whether a pod is of an earlier attempt or placement.
func (p *plan) isStale(pod *corev1.Pod) bool {
	return isStale(pod, p.status())
}

// isStale reports whether a pod is of an earlier attempt or placement than a status.
func isStale(pod *corev1.Pod, status *v2alpha1.DIJobStatus) bool {
	restarts, reschedules := status.Restarts, status.Reschedules
	return believed(attemptOf(pod), restarts) < restarts || believed(rescheduleOf(pod), reschedules) < reschedules
}

// rescheduleOf returns the count of reschedules that the pod was created with.
func rescheduleOf(pod *corev1.Pod) int32 {
	return annotatedNumber(pod, names.AnnotationReschedule, 0)
}

// WantsPlace reports whether the allocator must place a job.
func WantsPlace(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && !IsCoordinatorLed(job) && !IsLeftAlone(job) && !IsFinished(&job.Status) && !IsSuspended(job)
}

// LeavesPlace reports whether a job must give up its placement.
func LeavesPlace(job *v2alpha1.DIJob) bool {
	return job.Spec.Preemptible && !IsCoordinatorLed(job) && !IsLeftAlone(job) && !IsFinished(&job.Status) &&
		IsSuspended(job) && len(job.Status.Allocation) > 0
}

// NodesByRank returns the nodes of a job that was never placed, by rank: "" for a rank
// without a pod, and no nodes if the job does not run or its pods do not record their
// ranks. Nothing is known while a pod has no node yet.
func NodesByRank(job *v2alpha1.DIJob, pods []*corev1.Pod) (nodes []string, known bool) {
	total := wantedCounts(job).total
	if total > limits.Replicas {
		return nil, true
	}
	nodes = make([]string, total)
	live := false
	for _, pod := range pods {
		if podstate.Terminating(pod) || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		rank := rankOf(pod)
		switch {
		case pod.Spec.NodeName == "":
			return nil, false
		case rank < 0 || int(rank) >= len(nodes) || nodes[rank] != "":
			return nil, true
		}
		nodes[rank] = pod.Spec.NodeName
		live = live || !podstate.Finished(pod)
	}
	if !live {
		return nil, true
	}
	return nodes, true
}

// EndedRanks returns the ranks of a job that have succeeded in its current placement:
// those that are recorded, and those whose pods have succeeded. Recorded ranks of an
// earlier placement do not count.
func EndedRanks(job *v2alpha1.DIJob, pods []*corev1.Pod) map[int]bool {
	status := &job.Status
	if scaling := status.Scaling; scaling != nil && scaling.LastAllocation != "" && scaling.LastAllocation != digestOf(status.Allocation) {
		return nil
	}
	ended := map[int]bool{}
	if completed := readRanks(status.CompletedRanks); len(completed.ranges) > 0 {
		for rank := range min(max(len(status.Allocation), int(wantedCounts(job).total)), limits.Replicas) {
			if completed.has(int32(rank)) {
				ended[rank] = true
			}
		}
	}
	for _, pod := range podstate.IgnoreInjected(pods) {
		_, taken := pod.Annotations[names.AnnotationAttempt]
		isCurrent := !taken || attemptOf(pod) >= status.Restarts && rescheduleOf(pod) >= status.Reschedules
		if pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod) && isCurrent {
			ended[int(rankOf(pod))] = true
		}
	}
	return ended
}

// PlacedOn returns the node that a pod was created for, "" for none.
func PlacedOn(pod *corev1.Pod) string {
	return pod.Annotations[names.AnnotationNode]
}
