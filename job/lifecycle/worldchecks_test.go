// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// history is what the world records about a job, in addition to the API server's objects, to check
// the operator.
type history struct {
	// failedIn has the attempts in which a pod failed by its own process.
	failedIn map[int32]bool
	// succeeded has the replicas that succeeded, with attempt and placement.
	succeeded map[string]bool
	// ranks are the last ranks of replicas, and since when they have them.
	ranks map[string]rankGiven
	// started has the attempts and placements for which a pod was created.
	started map[[2]int32]bool
	// completed is when the job finished, as first recorded.
	completed *metav1.Time
	phase     v2alpha1.Phase
	// seen has the transitions that happened.
	seen map[transition]bool
	// recorded is the version of the job that the operator wrote last.
	recorded int
	// taken are the ConfigMaps that another program deleted.
	taken map[string]bool
	// twins is set if a rank was assigned twice, or a replica got another rank, because the cache
	// was behind.
	twins bool
}

// rankGiven is the rank that a replica got at a start.
type rankGiven struct {
	rank, reschedule int32
	// intended is the rank of the last decision, which the replica may not have.
	intended int32
	// isRecorded is set if the operator has written a status since.
	isRecorded bool
}

// recordRanks saves the ranks that the operator has recorded, because a pod that disappears earlier
// leaves no trace of its rank. An attempt starts with dense ranks. So a rank beyond them changes as
// soon as the start is recorded, even if no pod is created yet.
func (h *history) recordRanks(observed *Observed, decision *Decision) {
	recorded := recordOf(observed.Job, decision.Status.Scaling)
	for _, pod := range slices.Concat(observed.Pods, decision.CreatePods) {
		given, known := h.ranks[pod.Name]
		if rank, has := recorded[pod.Name]; known && has && given.rank == rank {
			given.isRecorded = true
			h.ranks[pod.Name] = given
		}
	}
	if len(observed.Pods) > 0 || decision.Status.CompletedRanks != "" {
		return
	}
	for name, given := range h.ranks {
		if given.rank >= decision.Status.Replicas {
			delete(h.ranks, name)
		}
	}
}

// recordOf returns the ranks of replicas in a record, by the names of their pods.
func recordOf(job *v2alpha1.DIJob, record *v2alpha1.ScalingStatus) map[string]int32 {
	found := map[string]int32{}
	if record == nil {
		return found
	}
	for task, run := range ranks.Former(job, record) {
		run := ranks.ReadRun(run)
		for at, index := range ranks.Indexes(record.Indexes[task], int32(len(run))) {
			found[names.WorkerPod(job.Name, task, index)] = run[at]
		}
	}
	return found
}

func newHistory() history {
	return history{
		failedIn: map[int32]bool{}, succeeded: map[string]bool{}, ranks: map[string]rankGiven{}, started: map[[2]int32]bool{}, seen: map[transition]bool{},
		taken: map[string]bool{},
	}
}

// checkDecision compares a decision with its observation.
func (w *world) checkDecision(observed *Observed, decision *Decision, cause string) {
	w.t.Helper()
	w.checkTransition(observed, decision, cause)
	w.checkFirstCause(observed, decision)
	if state.IsCoordinatorLed(observed.Job) && w.standby != nil {
		w.checkLedDecision(observed, decision)
	}
	if decision.DeleteJob || decision.IsAdoption() || state.IsCoordinatorLed(observed.Job) || state.IsLeftAlone(observed.Job) {
		return
	}
	if state.IsFinished(&observed.Job.Status) && len(decision.CreatePods)+len(decision.CreateServices) > 0 {
		w.t.Fatalf("a finished job gets pods or services")
	}
	if counted := sizing.Wanted(observed.Job); sizing.Excess(observed, &counted) != nil {
		if len(decision.CreatePods)+len(decision.DeletePods) > 0 && !state.IsSuspended(observed.Job) {
			w.t.Fatalf("pods of a job with too many desired pods come or go")
		}
		return
	}
	wanted := wantedNames(observed.Job)
	for name := range w.history.ranks {
		if !wanted[name] {
			delete(w.history.ranks, name)
		}
	}
	w.checkDeletions(observed, decision, wanted)
	if !conditions.IsTrue(&decision.Status, v2alpha1.ConditionInvalidSpec) {
		w.checkStart(observed, decision)
	}
	for _, pod := range decision.CreatePods {
		w.checkUnique(pod)
		w.checkStability(observed, pod)
	}
}

// checkDeletions checks the deletions of a decision, given the names of the desired pods.
func (w *world) checkDeletions(observed *Observed, decision *Decision, wanted map[string]bool) {
	w.t.Helper()
	deleted := map[string]bool{}
	for _, pod := range decision.DeletePods {
		if deleted[pod.Name] {
			w.t.Fatalf("pod %s is deleted twice", pod.Name)
		}
		deleted[pod.Name] = true
		w.checkDeletion(observed, decision, pod, wanted[pod.Name])
		w.checkRelease(observed, decision, pod)
	}
}

// wantedNames returns the names of the desired pods of a worker-led job.
func wantedNames(job *v2alpha1.DIJob) map[string]bool {
	wanted := map[string]bool{}
	for task, count := range sizing.Wanted(job).ByTask {
		for _, index := range indexesOf(job, task, count) {
			wanted[names.WorkerPod(job.Name, names.TaskName(&job.Spec.Tasks[task]), index)] = true
		}
	}
	return wanted
}

// checkDeletion checks that each deletion of a pod has a cause, and that a pod's failure or success
// is recorded first.
func (w *world) checkDeletion(observed *Observed, decision *Decision, pod *corev1.Pod, wanted bool) {
	w.t.Helper()
	status := &observed.Job.Status
	recorded := status.Restarts
	for _, other := range observed.Pods {
		// A pod of a later attempt proves that the failures before it are recorded.
		recorded = max(recorded, podstate.PlausibleCount(podstate.Attempt(other), status.Restarts))
	}
	isEarlier := podstate.PlausibleCount(podstate.Attempt(pod), status.Restarts) < recorded || podstate.Reschedule(pod) < decision.Status.Reschedules
	if state.IsFinished(status) || isEarlier || !wanted {
		return
	}
	isReplaced := podstate.ReplicaRestarts(pod) < status.ReplicaRestarts[pod.Name]
	isCompleted := isRankIn(podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked), status.CompletedRanks)
	switch {
	case mayChangeResources(observed.Job, pod), podstate.Active(pod) && isRegrouped(&decision.Status, pod):
	case mustRecordFailure(observed, pod) && !isReplaced:
		w.t.Fatalf("failed pod %s is deleted before its failure is recorded", pod.Name)
	case pod.Status.Phase == corev1.PodSucceeded && !w.history.twins && !isCompleted:
		w.t.Fatalf("succeeded pod %s is deleted before its success is recorded", pod.Name)
	case !isReplaced && !isCompleted && !hasCause(observed, pod):
		w.t.Fatalf("pod %s is deleted without a cause", pod.Name)
	}
}

// mustRecordFailure reports whether a pod has failed in a way that counts.
func mustRecordFailure(observed *Observed, pod *corev1.Pod) bool {
	return state.HasFailed(observed.Job, pod) && !mayIgnoreFailures(observed.Job) && stallOf(observed) == ""
}

// isRegrouped reports whether the replica of a pod is recorded in another group of Kueue.
func isRegrouped(status *v2alpha1.DIJobStatus, pod *corev1.Pod) bool {
	if status.Scaling == nil || status.Scaling.Growth == nil {
		return false
	}
	growth, name := status.Scaling.Growth, queueing.FromPod(pod).Group
	rank := podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
	return isRankIn(rank, growth.Alone) && name != "" || slices.ContainsFunc(growth.Groups, func(group v2alpha1.GrowthGroup) bool {
		return isRankIn(rank, group.Ranks) && name != fmt.Sprintf("%s-%d", growth.Start, group.Number)
	})
}

// mayChangeResources reports whether a pod may be replaced for other resources: those of the next pod
// are recorded, or its node has not applied them.
func mayChangeResources(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	isResizing := podstate.Active(pod) && pod.Annotations[names.AnnotationResize] != "" && !podstate.IsResized(pod)
	return isResizing || isOutdated(job, pod) && (podstate.OutOfMemory(pod) || podstate.Active(pod))
}

// isOutdated reports whether a pod was built for other resources than the job records.
func isOutdated(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	var overrides []v2alpha1.ResourceOverride
	if job.Status.Scaling != nil {
		overrides = job.Status.Scaling.Resources
	}
	index := podstate.AnnotatedNumber(pod, names.AnnotationTaskRank, 0)
	wanted := workload.OverrideOf(overrides, workload.ReplicaID{Task: pod.Labels[names.LabelTaskName], Index: index})
	return workload.FormatResources(wanted) != workload.FormatResources(workload.ReadResources(pod))
}

// mayIgnoreFailures reports whether a job's policy ignores some failures.
func mayIgnoreFailures(job *v2alpha1.DIJob) bool {
	return job.Spec.FailurePolicy != nil && slices.ContainsFunc(job.Spec.FailurePolicy.Rules, func(rule v2alpha1.FailurePolicyRule) bool {
		return rule.Action == v2alpha1.FailurePolicyIgnore
	})
}

// mayStart reports whether a pod may have containers that were never started.
func mayStart(pod *corev1.Pod) bool {
	return podstate.Phase(pod) == corev1.PodPending && !podstate.Terminating(pod)
}

// hasCause reports whether a desired pod may be deleted although no status records a reason.
func hasCause(observed *Observed, pod *corev1.Pod) bool {
	return state.IsSuspended(observed.Job) || isMigrated(observed.Job, pod) || podstate.FailedOrLost(pod) || hasTwin(observed.Pods, pod) || queueing.IsAbandoned(pod) || waitsInGang(observed, pod) ||
		mayStart(pod) && workload.NodesOf(pod) != "" && !hasGenuineNodes(observed, pod)
}

// isMigrated reports whether the plan that the job executes replaces a pod.
func isMigrated(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	record := scaling.RecordOf(job)
	return record != nil && record.Phase == v2alpha1.PlanExecuting && slices.ContainsFunc(record.Migrations, func(migrated v2alpha1.MigratedPod) bool {
		return migrated.UID == string(pod.UID)
	})
}

// hasGenuineNodes reports whether the ConfigMap of a pod is observed with its content.
func hasGenuineNodes(observed *Observed, pod *corev1.Pod) bool {
	return slices.ContainsFunc(observed.ConfigMaps, func(configMap *corev1.ConfigMap) bool {
		return configMap.Name == workload.NodesOf(pod) && workload.IsNodesConfigMap(observed.Job, configMap)
	})
}

// hasTwin reports whether another pod has the same rank.
func hasTwin(pods []*corev1.Pod, pod *corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(other *corev1.Pod) bool {
		return other.Name != pod.Name && other.Annotations[names.AnnotationRank] == pod.Annotations[names.AnnotationRank]
	})
}

// checkStart checks that the ranks of an attempt are dense from 0 when it starts, and for a
// preemptible job in the order of the spec.
func (w *world) checkStart(observed *Observed, decision *Decision) {
	w.t.Helper()
	if len(decision.CreatePods) == 0 || decision.Status.CompletedRanks != "" {
		return
	}
	first := decision.CreatePods[0]
	attempt := [2]int32{podstate.Attempt(first), podstate.Reschedule(first)}
	if w.history.started[attempt] {
		return
	}
	// Only a part of a large job is created at once, a job that an earlier release started is
	// continued, and a deleted job of the name may still have pods.
	if decision.More || decision.Waits || slices.ContainsFunc(observed.Pods, workload.IsOfEarlierRelease) {
		w.history.started[attempt] = true
		return
	}
	ranks := map[int32]bool{}
	for i, pod := range decision.CreatePods {
		rank := podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
		ranks[rank] = true
		if observed.Job.Spec.Preemptible && len(observed.Pods) == 0 && int(rank) != i {
			w.t.Fatalf("%s of a job that is placed starts at %d", outlinePod(pod), i)
		}
	}
	for rank := range podstate.AnnotatedNumber(first, names.AnnotationReplicas, 0) {
		if !ranks[rank] {
			w.t.Fatalf("attempt %v starts with ranks %v", attempt, slices.Sorted(maps.Keys(ranks)))
		}
	}
}

// checkCreation checks that a replica keeps its rank, that a completed one is not recreated, and
// that DI_NODES lists the pod at its rank and no pod twice.
func (w *world) checkCreation(pod *corev1.Pod) {
	w.t.Helper()
	if state.IsCoordinatorLed(w.job) {
		return
	}
	rank := podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
	if nodes := workload.NodesOf(pod); nodes != "" && w.cache != nil && (w.isFormer || w.cache.configMaps[nodes] != nil) && w.configMaps[nodes] == nil {
		// An operator has deleted it, and this one does not know.
		w.history.taken[nodes] = true
	}
	if !w.isMisled(pod) {
		w.checkNodesOf(pod, rank)
	}
	known := w.job
	if w.cache != nil {
		known = w.cache.job
	}
	if isCurrent := known.Status.Restarts == podstate.Attempt(pod) && known.Status.Reschedules == podstate.Reschedule(pod); isCurrent && isRankIn(rank, known.Status.CompletedRanks) {
		w.t.Fatalf("pod %s is made again though its rank %d has succeeded", pod.Name, rank)
	}
	w.checkGang(pod)
	if w.isFormer {
		// Another operator has acted since its decision.
		w.checkUnique(pod)
	}
	w.history.started[[2]int32{podstate.Attempt(pod), podstate.Reschedule(pod)}] = true
	if w.isBehindItself() {
		w.history.twins = w.history.twins || rank != w.history.ranks[pod.Name].rank
	} else {
		w.history.ranks[pod.Name] = rankGiven{rank: rank, intended: rank, reschedule: podstate.Reschedule(pod)}
	}
}

// checkNodesOf checks that DI_NODES lists the pod at its rank and no pod twice.
func (w *world) checkNodesOf(pod *corev1.Pod, rank int32) {
	w.t.Helper()
	env := w.environmentOf(pod)
	if env[names.EnvDIRank] != pod.Annotations[names.AnnotationRank] {
		w.t.Fatalf("pod %s of rank %d is told rank %s", pod.Name, rank, env[names.EnvDIRank])
	}
	nodes := strings.Split(env[names.EnvDINodes], ",")
	own := names.HostFQDN(pod.Name, pod.Spec.Subdomain, w.job.Namespace, names.DefaultDomain)
	if int(rank) >= len(nodes) || nodes[rank] != own {
		w.t.Fatalf("pod %s of rank %d is not itself in %v", pod.Name, rank, nodes)
	}
	told := map[string]bool{}
	for _, node := range nodes {
		if node != "" && told[node] {
			w.t.Fatalf("pod %s is told %s twice: %v", pod.Name, node, nodes)
		}
		told[node] = true
	}
}

// isBehindItself reports whether the cache does not have the operator's own last status yet.
func (w *world) isBehindItself() bool {
	return w.cache != nil && versionOf(w.cache.job) < w.history.recorded
}

func versionOf(job *v2alpha1.DIJob) int {
	version, err := strconv.Atoi(job.ResourceVersion)
	if err != nil {
		return 0
	}
	return version
}

// checkUnique checks that no two replicas get one rank, unless the cache does not have the first
// assignment yet.
func (w *world) checkUnique(pod *corev1.Pod) {
	w.t.Helper()
	rank := podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
	for name, other := range w.pods {
		if name == pod.Name || podstate.AnnotatedNumber(other, names.AnnotationRank, podstate.Unranked) != rank {
			continue
		}
		if w.isDecidedSynced {
			w.t.Fatalf("rank %d is given to %s and is that of %s", rank, pod.Name, name)
		}
		w.history.twins = true
	}
}

// checkStability checks that a replica keeps its rank, except after a reschedule or in a new
// attempt with fewer ranks.
func (w *world) checkStability(observed *Observed, pod *corev1.Pod) {
	w.t.Helper()
	// A pod that is created from a stale status belongs to an earlier attempt and is deleted. A pod
	// that exists already is not created.
	if w.pods[pod.Name] != nil || podstate.Attempt(pod) < w.job.Status.Restarts || podstate.Reschedule(pod) < w.job.Status.Reschedules {
		return
	}
	before, known := w.history.ranks[pod.Name]
	lives := slices.ContainsFunc(observed.Pods, func(pod *corev1.Pod) bool { return !podstate.Terminating(pod) })
	isPlaced := observed.Job.Spec.Preemptible && !lives
	if !known || podstate.Reschedule(pod) != before.reschedule {
		return
	}
	rank := podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
	if isPlaced {
		before.intended = rank
		w.history.ranks[pod.Name] = before
		return
	}
	isKept := rank == before.rank || rank == before.intended || before.rank >= podstate.AnnotatedNumber(pod, names.AnnotationReplicas, 0)
	if before.isRecorded && !isKept && w.isBehindItself() {
		w.history.twins = true
	}
	if before.isRecorded && !isKept && !w.history.twins {
		w.t.Fatalf("%s had rank %d and has %d now", pod.Name, before.rank, rank)
	}
	before.intended = rank
	w.history.ranks[pod.Name] = before
}

// checkCommit compares a status with the recorded one before it is written.
func (w *world) checkCommit(status *v2alpha1.DIJobStatus) {
	w.t.Helper()
	if state.IsCoordinatorLed(w.job) {
		return
	}
	before := &w.job.Status
	learned := before.Restarts
	for _, pod := range w.pods {
		learned = max(learned, podstate.PlausibleCount(podstate.Attempt(pod), before.Restarts))
	}
	if status.Restarts > learned+1 || status.Restarts < before.Restarts || status.Reschedules < before.Reschedules {
		w.t.Fatalf("restarts go from %d to %d, reschedules from %d to %d", before.Restarts, status.Restarts, before.Reschedules, status.Reschedules)
	}
	if w.cache == nil {
		return
	}
	for attempt := before.Restarts; attempt < status.Restarts; attempt++ {
		if !w.history.failedIn[attempt] {
			w.t.Fatalf("restart %d is counted though nothing failed in the attempt before it", attempt+1)
		}
	}
	limit := int32(3)
	if w.job.Spec.BackoffLimit != nil {
		limit = *w.job.Spec.BackoffLimit
	}
	if limit >= 0 && status.Restarts > limit {
		w.t.Fatalf("%d restarts are beyond the limit %d", status.Restarts, limit)
	}
}

// phaseConditions returns the types of conditions that are named after a phase.
func phaseConditions() []string {
	kinds := []string{v2alpha1.ConditionCreated}
	for _, phase := range []v2alpha1.Phase{
		v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRestarting, v2alpha1.JobRescheduling,
		v2alpha1.JobRunning, v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown,
	} {
		kinds = append(kinds, string(phase))
	}
	return kinds
}

// checkInvariants checks the invariants of every moment.
func (w *world) checkInvariants() {
	w.t.Helper()
	status := &w.job.Status
	current := 0
	for _, condition := range status.Conditions {
		if slices.Contains(phaseConditions(), condition.Type) && condition.Status == corev1.ConditionTrue {
			current++
			isCreated := state.IsCoordinatorLed(w.job) && (status.Phase == v2alpha1.JobPending || status.Phase == v2alpha1.JobStarting)
			if isCreated != (condition.Type == v2alpha1.ConditionCreated) || !isCreated && condition.Type != string(status.Phase) {
				w.t.Fatalf("condition %s is true in phase %s", condition.Type, status.Phase)
			}
		}
	}
	if current > 1 {
		w.t.Fatalf("%d phase conditions are true: %+v", current, status.Conditions)
	}
	if state.IsFinished(status) != (status.CompletionTimestamp != nil) {
		w.t.Fatalf("finished is %v and the completion timestamp %v", state.IsFinished(status), status.CompletionTimestamp)
	}
	w.checkEnd(status)
	w.checkNodes()
	if state.IsCoordinatorLed(w.job) && w.standby != nil {
		w.checkLed()
		w.checkLedEnd(status)
	}
	if !state.IsCoordinatorLed(w.job) && w.isDecidedSynced && !w.history.twins {
		w.checkRanks()
		w.checkClusters()
	}
}

// checkNodes checks that the ConfigMap of a live pod exists, unless another program deleted it, and
// that its content matches its name.
func (w *world) checkNodes() {
	w.t.Helper()
	for name, pod := range w.pods {
		if nodes := workload.NodesOf(pod); w.configMaps[nodes] == nil && nodes != "" && !podstate.Finished(pod) && !podstate.OnlyInjectedRun(pod) && !w.history.taken[nodes] {
			w.t.Fatalf("%s refers to ConfigMap %s, which was deleted", name, nodes)
		}
	}
}

// noteUnknownReferrers records that the operator deleted a ConfigMap whose pods are not in its
// cache yet. These pods have not started, and get a ConfigMap once the cache has them.
func (w *world) noteUnknownReferrers(configMap string) {
	for name, pod := range w.pods {
		if w.cache == nil || workload.NodesOf(pod) != configMap {
			continue
		}
		if known := w.cache.pods[name]; known == nil || known.UID != pod.UID {
			w.history.taken[configMap] = true
		}
	}
}

// isMisled reports whether another program deleted or replaced the ConfigMap of a pod, so that the
// pod's peers are unknown.
func (w *world) isMisled(pod *corev1.Pod) bool {
	name := workload.NodesOf(pod)
	configMap := w.configMaps[name]
	return w.history.taken[name] && (configMap == nil || !workload.IsNodesConfigMap(w.job, configMap))
}

// checkNodesAtRest checks that pods that wait have their ConfigMap, and that no unused one is left.
func (w *world) checkNodesAtRest() {
	w.t.Helper()
	used := map[string]bool{}
	isFilled := true
	for name, pod := range w.pods {
		isFilled = isFilled && (!podstate.Finished(pod) || pod.Status.Phase == corev1.PodSucceeded)
		if podstate.Finished(pod) || podstate.OnlyInjectedRun(pod) {
			continue
		}
		used[workload.NodesOf(pod)] = true
		if state.IsFinished(&w.job.Status) && w.history.taken[workload.NodesOf(pod)] {
			// The objects of a finished job belong to its user.
			continue
		}
		if mayStart(pod) && !w.hasNodes(pod) {
			w.t.Fatalf("%s waits for ConfigMap %s, which is not there", name, workload.NodesOf(pod))
		}
		// A pod that started with other content continues: nothing shows that.
		if mayStart(pod) && w.isMisled(pod) {
			w.t.Fatalf("%s waits for ConfigMap %s, which does not hold what its name tells", name, workload.NodesOf(pod))
		}
	}
	for name := range w.configMaps {
		if !used[name] && (isFilled || state.IsFinished(&w.job.Status)) {
			w.t.Fatalf("ConfigMap %s is left and no pod refers to it: %s", name, w.outline())
		}
	}
}

// checkEnd checks that a finished job does not change.
func (w *world) checkEnd(status *v2alpha1.DIJobStatus) {
	w.t.Helper()
	end := w.history.completed
	switch {
	case end != nil && (!end.Equal(status.CompletionTimestamp) || status.Phase != w.history.phase):
		w.t.Fatalf("a job that was %s at %v is %s at %v", w.history.phase, end, status.Phase, status.CompletionTimestamp)
	case end == nil && state.IsFinished(status):
		w.history.completed, w.history.phase = status.CompletionTimestamp.DeepCopy(), status.Phase
	}
}

// checkRanks checks that no two pods have the same rank.
func (w *world) checkRanks() {
	w.t.Helper()
	holders := map[string]string{}
	for name, pod := range w.pods {
		rank := pod.Annotations[names.AnnotationRank]
		if other, taken := holders[rank]; taken {
			w.t.Fatalf("rank %s is held by %s and %s", rank, other, name)
		}
		holders[rank] = name
	}
}

// checkClusters checks that the pods of a running job have the same cluster spec, and each its own
// position in it.
func (w *world) checkClusters() {
	w.t.Helper()
	if w.job.Status.Phase != v2alpha1.JobRunning || len(w.job.Spec.ClusterSpec) == 0 {
		return
	}
	var first map[string]string
	places := map[string]string{}
	for _, name := range w.podNames() {
		if pod := w.pods[name]; podstate.Terminating(pod) || podstate.Finished(pod) || w.isMisled(pod) {
			continue
		}
		told := w.environmentOf(w.pods[name])
		if first == nil {
			first = told
		}
		config, task := w.clusterTold(told)
		want, _ := w.clusterTold(first)
		if config != want || told[names.EnvWorldSize] != first[names.EnvWorldSize] || told[names.EnvMasterAddr] != first[names.EnvMasterAddr] {
			w.t.Fatalf("%s was told of another cluster than others: %v, not %v", name, told, first)
		}
		for _, place := range []string{names.EnvRank + told[names.EnvRank], names.EnvTFConfig + task} {
			if other, taken := places[place]; taken && place != names.EnvRank && place != names.EnvTFConfig {
				w.t.Fatalf("%s has the place %s of %s", name, place, other)
			}
			places[place] = name
		}
		w.checkRank(name, told)
	}
}

// checkRank checks that a rank is less than the world size.
func (w *world) checkRank(name string, told map[string]string) {
	w.t.Helper()
	if !slices.Contains(w.job.Spec.ClusterSpec, v2alpha1.ClusterSpecTorch) {
		return
	}
	rank, err := strconv.Atoi(told[names.EnvRank])
	size, sizeErr := strconv.Atoi(told[names.EnvWorldSize])
	if err != nil || sizeErr != nil || rank < 0 || rank >= size {
		w.t.Fatalf("%s has rank %q in a world of %q", name, told[names.EnvRank], told[names.EnvWorldSize])
	}
}

// clusterTold returns the cluster of a pod's TF_CONFIG without dynamic workers, and the pod's
// position in it; "" if it has none.
func (w *world) clusterTold(told map[string]string) (cluster, task string) {
	w.t.Helper()
	text := told[names.EnvTFConfig]
	if !names.HasDynamicWorkers(&w.job.Spec) || text == "" {
		// This runs for every pod at every step, so it compares the text without decoding it.
		cluster, task, _ = strings.Cut(text, `,"task":`)
		return cluster, task
	}
	var config struct {
		Cluster map[string]json.RawMessage
		Task    json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	delete(config.Cluster, "worker")
	return fmt.Sprintf("%s", config.Cluster), string(config.Task)
}

func replicaKey(name string, attempt, reschedule int32) string {
	return fmt.Sprintf("%s@%d.%d", name, attempt, reschedule)
}

// checkRest compares the observed objects with the desired ones once nothing changes.
func (w *world) checkRest() {
	w.t.Helper()
	if state.IsCoordinatorLed(w.job) {
		w.checkLedRest()
		return
	}
	w.checkHandshakeAtRest()
	w.checkGroupAtRest()
	w.checkNodesAtRest()
	if state.IsFinished(&w.job.Status) {
		if len(w.services) > 0 {
			w.t.Fatalf("a finished job has services")
		}
		return
	}
	isIdle := state.IsSuspended(w.job) || w.job.Spec.Preemptible && len(w.job.Status.Allocation) == 0
	w.checkPodsAtRest(isIdle)
	if !isIdle {
		w.checkTold()
	}
	if _, served := w.services[names.WorkerService("job")]; !isIdle && (!served || len(w.services) != 1) {
		w.t.Fatalf("services are %v", slices.Sorted(maps.Keys(w.services)))
	}
	w.checkRanks()
	if w.history.twins {
		// A replica that shared a rank has its own rank now.
		w.history.twins = false
		clear(w.history.ranks)
	}
}

// checkTold checks that live pods have the current cluster spec.
func (w *world) checkTold() {
	w.t.Helper()
	cluster := workload.DescribeCluster(&w.job.Spec, sizing.Wanted(w.job).ByTask)
	for _, pod := range w.pods {
		if told := pod.Annotations[names.AnnotationCluster]; cluster != "" && told != cluster && !podstate.Finished(pod) {
			w.t.Fatalf("%s was told of cluster %q, and it is %q", outlinePod(pod), told, cluster)
		}
	}
}

// checkPodsAtRest checks that exactly the desired pods of this attempt exist.
func (w *world) checkPodsAtRest(isIdle bool) {
	w.t.Helper()
	wanted := wantedNames(w.job)
	for name, pod := range w.pods {
		// A job whose placement was never recorded keeps its pods until it is placed.
		isTooMany := isIdle && (state.IsSuspended(w.job) || w.job.Status.Reschedules > 0 || placements.PlacedOn(pod) != "")
		if !wanted[name] && w.isKept(pod) && !isIdle {
			continue
		}
		if isTooMany || !wanted[name] || podstate.Attempt(pod) != w.job.Status.Restarts || podstate.Reschedule(pod) != w.job.Status.Reschedules {
			w.t.Fatalf("%s should not be there: idle %v, wanted %v", outlinePod(pod), isIdle, slices.Sorted(maps.Keys(wanted)))
		}
	}
	for name := range wanted {
		_, exists := w.pods[name]
		isDone := w.history.succeeded[replicaKey(name, w.job.Status.Restarts, w.job.Status.Reschedules)]
		if !exists && !isIdle && !isDone {
			w.t.Fatalf("%s is not there and has not succeeded; ranks %q have: %s", name, w.job.Status.CompletedRanks, w.outline())
		}
	}
}

// isRankIn reports whether ranges contain a rank.
func isRankIn(rank int32, text string) bool {
	ranks := ranks.Read(text)
	return ranks.Has(rank)
}

// checkInput checks that rules change neither the observation nor the input computed from it.
func (w *world) checkInput(before, after *reconcile) {
	w.t.Helper()
	// A builder caches the templates that it has decoded.
	before.in.Builder, after.in.Builder = nil, nil
	if !reflect.DeepEqual(inputOf(before.job), inputOf(after.job)) {
		w.t.Fatalf("a rule has changed its input (-before +after):\n%s", cmp.Diff(before.in.Observed, after.in.Observed))
	}
}

// inputOf returns what the rules of a lifecycle read: its facts, which have the input, or the input.
func inputOf(rules lifecycle) any {
	plan := reflect.ValueOf(rules).Elem()
	read := plan.FieldByName("facts")
	if !read.IsValid() {
		read = plan.FieldByName("in")
	}
	// The fields are not exported.
	return reflect.NewAt(read.Type(), read.Addr().UnsafePointer()).Elem().Interface()
}

// copyObserved copies an observation with the objects in it.
func copyObserved(observed *Observed) Observed {
	copied := *observed
	copied.Job, copied.Membership = observed.Job.DeepCopy(), observed.Membership.DeepCopy()
	copied.Pods, copied.Services, copied.ConfigMaps = copyAll(observed.Pods), copyAll(observed.Services), copyAll(observed.ConfigMaps)
	copied.PodGroups = copyAll(observed.PodGroups)
	return copied
}

// copyAll copies objects in their order.
func copyAll[T interface{ DeepCopy() T }](objects []T) []T {
	copies := slices.Clone(objects)
	for i, object := range objects {
		copies[i] = object.DeepCopy()
	}
	return copies
}

// stallOf returns the reason why a replica cannot start, according to the pods or to the recorded status, and ""
// if all can.
func stallOf(observed *Observed) string {
	starts := []string{"ContainerStart", "ContainerConfig", "ImagePull", "PodSetup", "Unschedulable"}
	for _, pod := range observed.Pods {
		if found, active, _ := podstate.ActiveProblem(pod, observed.Now); active && slices.Contains(starts, found.Reason) {
			return found.Reason
		}
	}
	for kind, reasons := range map[string][]string{
		v2alpha1.ConditionReplicasStalled: starts, v2alpha1.ConditionNameConflict: {"NameConflict"},
		v2alpha1.ConditionReplicaFailure: {"FailedCreate", "QuotaExceeded", "PodSecurityViolation", "LimitRangeViolation", "ResourcesMissing"},
	} {
		recorded := conditions.Find(&observed.Job.Status, kind)
		if recorded != nil && recorded.Status == corev1.ConditionTrue && slices.Contains(reasons, recorded.Reason) {
			return recorded.Reason
		}
	}
	return ""
}

// checkFirstCause checks that a job that fails while a replica cannot start names that first.
func (w *world) checkFirstCause(observed *Observed, decision *Decision) {
	w.t.Helper()
	stall := stallOf(observed)
	if stall == "" || decision.Status.Phase != v2alpha1.JobFailed || state.IsFinished(&observed.Job.Status) {
		return
	}
	said := conditions.Find(&decision.Status, string(v2alpha1.JobFailed))
	for _, text := range []string{said.Message, decision.Status.LastFailure.Message} {
		if first, _, found := strings.Cut(text, "then "); !found || !strings.Contains(first, stall+" for ") {
			w.t.Fatalf("the job has failed while a replica was stalled (%s), and says only: %s", stall, text)
		}
	}
}
