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
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/lifecycle/workerled"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/workload"
)

// history is what the world remembers of a job beside what the API server has,
// to judge the operator by.
type history struct {
	// failedIn has the attempts in which a pod failed by what it ran.
	failedIn map[int32]bool
	// succeeded has the replicas that have, with attempt and placement.
	succeeded map[string]bool
	// ranks are those that replicas had last, and since when.
	ranks map[string]rankGiven
	// started has the attempts and placements of which a pod was created.
	started map[[2]int32]bool
	// completed is when the job finished, as first recorded.
	completed *metav1.Time
	phase     v2alpha1.Phase
	// seen has the transitions that happened.
	seen map[transition]bool
	// recorded is the version of the job as the operator wrote it last.
	recorded int
	// taken are the ConfigMaps that somebody else deleted.
	taken map[string]bool
	// twins says that a rank was given twice, or another one to who had one, as
	// the operator saw too little.
	twins bool
}

// rankGiven is the rank that a replica was given at a start.
type rankGiven struct {
	rank, reschedule int32
	// intended is the rank that was last decided on, which it may not have got.
	intended int32
	// isRecorded says that the operator has written a status since.
	isRecorded bool
}

// recordRanks notes which ranks the operator has recorded: a pod that is gone
// before it has left nothing that tells of its rank. An attempt that starts has
// dense ranks, so one that is beyond them is another from when that is recorded,
// though nothing may be made yet.
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

// recordOf returns the ranks that a record has of replicas, by the names of their pods.
func recordOf(job *v2alpha1.DIJob, record *v2alpha1.ScalingStatus) map[string]int32 {
	found := map[string]int32{}
	if record == nil {
		return found
	}
	for task, run := range ranks.Former(job, record) {
		for index, rank := range ranks.ReadRun(run) {
			found[names.WorkerPod(job.Name, task, int32(index))] = rank
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

// checkDecision holds a decision against what it was decided on.
func (w *world) checkDecision(observed *Observed, decision *Decision, cause string) {
	w.t.Helper()
	w.checkTransition(observed, decision, cause)
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
	deleted := map[string]bool{}
	for _, pod := range decision.DeletePods {
		if deleted[pod.Name] {
			w.t.Fatalf("pod %s is deleted twice", pod.Name)
		}
		deleted[pod.Name] = true
		w.checkDeletion(observed, decision, pod, wanted[pod.Name])
	}
	if !conditions.IsTrue(&decision.Status, v2alpha1.ConditionInvalidSpec) {
		w.checkStart(observed, decision)
	}
	for _, pod := range decision.CreatePods {
		w.checkUnique(pod)
		w.checkStability(observed, pod)
	}
}

// wantedNames are the names of the pods that a worker-led job is to have.
func wantedNames(job *v2alpha1.DIJob) map[string]bool {
	wanted := map[string]bool{}
	for task, count := range sizing.Wanted(job).ByTask {
		for index := range count {
			wanted[names.WorkerPod(job.Name, names.TaskName(&job.Spec.Tasks[task]), index)] = true
		}
	}
	return wanted
}

// checkDeletion: nobody is deleted without a cause, and nobody who failed or
// succeeded before that is recorded.
func (w *world) checkDeletion(observed *Observed, decision *Decision, pod *corev1.Pod, wanted bool) {
	w.t.Helper()
	status := &observed.Job.Status
	isEarlier := podstate.PlausibleCount(podstate.Attempt(pod), status.Restarts) < status.Restarts || podstate.Reschedule(pod) < decision.Status.Reschedules
	if state.IsFinished(status) || isEarlier || !wanted {
		return
	}
	isReplaced := podstate.ReplicaRestarts(pod) < status.ReplicaRestarts[pod.Name]
	isCompleted := isRankIn(podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked), status.CompletedRanks)
	switch {
	case state.HasFailed(observed.Job, pod) && !mayIgnoreFailures(observed.Job) && !isReplaced:
		w.t.Fatalf("failed pod %s is deleted before its failure is recorded", pod.Name)
	case pod.Status.Phase == corev1.PodSucceeded && !w.history.twins && !isCompleted:
		w.t.Fatalf("succeeded pod %s is deleted before its success is recorded", pod.Name)
	case !isReplaced && !isCompleted && !hasCause(observed, pod):
		w.t.Fatalf("pod %s is deleted without a cause", pod.Name)
	}
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

// hasCause reports whether a wanted pod may be deleted though nothing is recorded of it.
func hasCause(observed *Observed, pod *corev1.Pod) bool {
	return state.IsSuspended(observed.Job) || podstate.FailedOrLost(pod) || hasTwin(observed.Pods, pod) || queueing.IsAbandoned(pod) || waitsInGang(observed, pod) ||
		mayStart(pod) && workload.NodesOf(pod) != "" && !hasGenuineNodes(observed, pod)
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

// checkStart: the ranks of an attempt are dense from 0 when it starts, and of a
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
	// Of a large job only a part is created at once, and what an earlier release
	// has begun is gone on with.
	if decision.More || slices.ContainsFunc(observed.Pods, workload.IsOfEarlierRelease) {
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

// checkCreation: DI_NODES has the pod itself at its rank and nobody twice, a
// replica keeps its rank, and one that has succeeded is not made again.
func (w *world) checkCreation(pod *corev1.Pod) {
	w.t.Helper()
	if state.IsCoordinatorLed(w.job) {
		return
	}
	rank := podstate.AnnotatedNumber(pod, names.AnnotationRank, podstate.Unranked)
	if nodes := workload.NodesOf(pod); w.cache != nil && w.cache.configMaps[nodes] != nil && w.configMaps[nodes] == nil {
		// The operator has deleted it, and does not know that yet.
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
	w.history.started[[2]int32{podstate.Attempt(pod), podstate.Reschedule(pod)}] = true
	if w.isBehindItself() {
		w.history.twins = w.history.twins || rank != w.history.ranks[pod.Name].rank
	} else {
		w.history.ranks[pod.Name] = rankGiven{rank: rank, intended: rank, reschedule: podstate.Reschedule(pod)}
	}
}

// checkNodesOf: DI_NODES has the pod itself at its rank and nobody twice.
func (w *world) checkNodesOf(pod *corev1.Pod, rank int32) {
	w.t.Helper()
	env := w.environmentOf(pod)
	if env[names.EnvDIRank] != pod.Annotations[names.AnnotationRank] {
		w.t.Fatalf("pod %s of rank %d is told rank %s", pod.Name, rank, env[names.EnvDIRank])
	}
	nodes := strings.Split(env[names.EnvDINodes], ",")
	own := names.HostFQDN(pod.Name, pod.Spec.Subdomain, "space", names.DefaultDomain)
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

// isBehindItself reports whether the operator does not know yet what it last
// recorded itself.
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

// checkUnique: nobody gets a rank that another has, unless the operator does not
// know yet that it was given.
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

// checkStability: a replica keeps its rank, but where all are placed or sized
// again, and where a new attempt has fewer ranks than that.
func (w *world) checkStability(observed *Observed, pod *corev1.Pod) {
	w.t.Helper()
	// What is made by a status that is out of date is of an earlier attempt, and
	// goes; what exists already is not made.
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

// checkCommit holds a status that is about to be recorded against the recorded one.
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

// phaseConditions are the types of conditions that are named after a phase.
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

// checkInvariants are what must hold at every moment.
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
	if !state.IsCoordinatorLed(w.job) && w.isDecidedSynced && !w.history.twins {
		w.checkRanks()
		w.checkClusters()
	}
}

// checkNodes: what pods were told of each other is there while one of them lives,
// unless somebody else took it away, and always holds what its name tells.
func (w *world) checkNodes() {
	w.t.Helper()
	for name, pod := range w.pods {
		if nodes := workload.NodesOf(pod); w.configMaps[nodes] == nil && nodes != "" && !podstate.Finished(pod) && !podstate.OnlyInjectedRun(pod) && !w.history.taken[nodes] {
			w.t.Fatalf("%s refers to ConfigMap %s, which was deleted", name, nodes)
		}
	}
}

// noteUnknownReferrers notes that the operator deleted a ConfigMap to which pods
// refer that it does not know yet, as it did not hear that they were made. They
// have not started, and get what they need when it knows them.
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

// isMisled reports whether somebody else took away what a pod refers to, or put
// something else in its place, so that nobody knows what it was told.
func (w *world) isMisled(pod *corev1.Pod) bool {
	name := workload.NodesOf(pod)
	configMap := w.configMaps[name]
	return w.history.taken[name] && (configMap == nil || !workload.IsNodesConfigMap(w.job, configMap))
}

// checkNodesAtRest: pods that wait have what they wait for, and nothing is left
// that no pod refers to.
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
			// What a job that has finished leaves is its user's.
			continue
		}
		if mayStart(pod) && !w.hasNodes(pod) {
			w.t.Fatalf("%s waits for ConfigMap %s, which is not there", name, workload.NodesOf(pod))
		}
		// What was started with something else goes on: nobody can tell.
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

// checkEnd: a job that has finished stays as it was then.
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

// checkRanks: no two pods have the same rank.
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

// checkClusters: the pods of a job that runs were told of one and the same
// cluster, in which each has a place of its own.
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

// checkRank: a rank is one of those of the world.
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

// clusterTold returns the cluster of a pod's TF_CONFIG, less the workers that come
// and go, and the pod's place in it; "" where it has none.
func (w *world) clusterTold(told map[string]string) (cluster, task string) {
	w.t.Helper()
	text := told[names.EnvTFConfig]
	if !names.HasDynamicWorkers(&w.job.Spec) {
		// It is held against others for every pod at every step, as it is written.
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

// checkRest holds what is there against what is to be, when the operator has
// come to rest.
func (w *world) checkRest() {
	w.t.Helper()
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
		// Who had a rank with another has one of its own now.
		w.history.twins = false
		clear(w.history.ranks)
	}
}

// checkTold: the pods that live were told of the cluster that there is.
func (w *world) checkTold() {
	w.t.Helper()
	cluster := workload.DescribeCluster(&w.job.Spec, sizing.Wanted(w.job).ByTask)
	for _, pod := range w.pods {
		if told := pod.Annotations[names.AnnotationCluster]; cluster != "" && told != cluster && !podstate.Finished(pod) {
			w.t.Fatalf("%s was told of cluster %q, and it is %q", outlinePod(pod), told, cluster)
		}
	}
}

// checkPodsAtRest: there are the pods of this attempt that are wanted, and no others.
func (w *world) checkPodsAtRest(isIdle bool) {
	w.t.Helper()
	wanted := wantedNames(w.job)
	for name, pod := range w.pods {
		// One that was never recorded to be placed keeps what it has until it is.
		isTooMany := isIdle && (state.IsSuspended(w.job) || w.job.Status.Reschedules > 0 || workerled.PlacedOn(pod) != "")
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

// isRankIn reports whether ranges hold a rank.
func isRankIn(rank int32, text string) bool {
	ranks := ranks.Read(text)
	return ranks.Has(rank)
}

// checkInput: no rule changes what it reads, neither the observation nor what was
// computed from it.
func (w *world) checkInput(before, after *reconcile) {
	w.t.Helper()
	// A builder remembers the templates that it has read.
	before.in.Builder, after.in.Builder = nil, nil
	inputOf := func(r *reconcile) any { return reflect.ValueOf(r.job).Elem().FieldByName("Input").Interface() }
	if !reflect.DeepEqual(inputOf(before), inputOf(after)) {
		w.t.Fatalf("a rule has changed its input (-before +after):\n%s", cmp.Diff(before.in.Observed, after.in.Observed))
	}
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
