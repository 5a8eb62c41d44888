// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/disruptions"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// TestAJobInAWorldThatFailsAndLags applies random events to a job, its two operators and their caches. The checks of
// the world must hold at every step, and no policy may refuse what a program writes. Then faults stop. The job must
// reach its desired state and, unless it has failed, succeed.
func TestAJobInAWorldThatFailsAndLags(t *testing.T) {
	t.Parallel()
	(&game{policies: compiled(t, installed(t)), perform: performOne}).playAll(t)
}

// TestACoordinatorLedJobInAWorldThatFailsAndLags is the same for a coordinator-led job, whose coordinator asks di-server
// for replicas. The job must have the replicas that were asked for.
func TestACoordinatorLedJobInAWorldThatFailsAndLags(t *testing.T) {
	t.Parallel()
	(&game{policies: compiled(t, installed(t)), perform: performLed}).playAll(t)
}

// TestAWorldFindsAPolicyThatLacksAFieldOfDiServer drops each field of the status that di-server writes from its policy.
func TestAWorldFindsAPolicyThatLacksAFieldOfDiServer(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"requests", "replicas", "profilings", "rates", "membershipAcks"} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			manifests := installed(t)
			for i := range manifests {
				manifests[i] = strings.NewReplacer("'"+field+"', ", "", ", '"+field+"'", "").Replace(manifests[i])
			}
			g := &game{policies: compiled(t, manifests), perform: performOne}
			for seed := range uint64(mutantRounds) {
				if failure, _ := g.play(1+seed, whole(), false); failure != "" {
					t.Logf("-world.seed=%d: %s", 1+seed, failure)
					return
				}
			}
			t.Errorf("no world of %d notices", mutantRounds)
		})
	}
}

// anySpec returns a worker-led job.
func anySpec(random *rand.Rand) v2alpha1.DIJobSpec {
	spec := trainingJob()
	for i := range spec.Tasks {
		spec.Tasks[i].Replicas = ptr.To(1 + random.Int32N(3))
	}
	if limit := random.Int32N(6) - 1; limit < 4 {
		spec.BackoffLimit = ptr.To(limit)
	}
	if random.IntN(3) == 0 {
		spec.FailurePolicy = anyPolicy(random)
	}
	spec.Preemptible = random.IntN(3) == 0
	spec.CleanPodPolicy = []v2alpha1.CleanPodPolicy{"", v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone}[random.IntN(3)]
	if random.IntN(4) == 0 {
		spec.Elastic = &v2alpha1.Elastic{OnResize: v2alpha1.OnResizeRestart}
	}
	spec.ClusterSpec = anyClusterSpec(random)
	if random.IntN(20) == 0 {
		spec.ActiveDeadlineSeconds = ptr.To(int64(60))
	}
	if random.IntN(3) == 0 {
		spec.Tasks[1].Drain = &v2alpha1.Drain{
			TimeoutSeconds: ptr.To(1 + random.Int32N(60)),
			OnTimeout:      []v2alpha1.DrainTimeoutAction{"", v2alpha1.DrainKeep, v2alpha1.DrainRemove}[random.IntN(3)],
		}
		// A failed job is never resized.
		spec.BackoffLimit = ptr.To[int32](-1)
	}
	return spec
}

// anyClusterSpec mostly returns no framework, else some.
func anyClusterSpec(random *rand.Rand) []v2alpha1.ClusterSpec {
	switch random.IntN(6) {
	case 0:
		return []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}
	case 1:
		return []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}
	case 2:
		return []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow, v2alpha1.ClusterSpecTorch}
	case 3:
		return []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}
	}
	return nil
}

// happen applies one random event to the world. Jobs that hold state are resized more often.
func (w *world) happen(random *rand.Rand) {
	if !state.IsCoordinatorLed(w.job) && handshake.HasStateful(w.job) && random.IntN(4) > 0 {
		w.befallServers(random)
		return
	}
	w.now = w.now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
	switch choice := random.IntN(54); {
	case choice < 12:
		w.hear(random)
	case choice < 23:
		w.reconcile(random)
	case choice == 23:
		w.handOver(random)
	case choice == 24:
		w.now = w.now.Add(30 * time.Second)
		w.tell("time passes")
	case choice == 25:
		w.tell("resync")
		w.resync()
	default:
		w.disturb(random)
	}
}

// disturb applies one random event to the job that is not its operator's.
func (w *world) disturb(random *rand.Rand) {
	switch choice := random.IntN(28); {
	case choice < 10:
		w.befallReplicas(random)
	case choice < 14:
		w.befallJob(random)
	case choice < 16:
		w.befallNodes(random)
	case choice < 20:
		w.anyMemberReads(random)
	case choice < 23:
		w.befallPlans(random)
	default:
		w.befallServer(random)
	}
}

// reconcile makes the operator that leads reconcile once. Its writes may fail, and it may die.
func (w *world) reconcile(random *rand.Rand) {
	w.fate = anyFate(random)
	w.step()
	w.fate = nil
	if w.died {
		w.changeLeader()
		w.standby = w.newOperator(random)
	}
}

// befallReplicas applies an event to pods of the job.
func (w *world) befallReplicas(random *rand.Rand) {
	if state.IsCoordinatorLed(w.job) {
		w.befallLedPod(random)
	} else {
		w.befallPod(random)
	}
}

// handOver makes the other operator lead while the first one still writes what it has decided.
func (w *world) handOver(random *rand.Rand) {
	left := random.IntN(8)
	w.beforeWrite = func() {
		if left--; left >= 0 {
			return
		}
		interrupted := w.pass
		w.beforeWrite = nil
		w.changeLeader()
		for range 1 + random.IntN(4) {
			w.hear(random)
			w.step()
		}
		w.tell("the former operator continues")
		w.operator, w.standby, w.pass = w.standby, w.operator, pass{failed: interrupted.failed, isFormer: true}
	}
	w.step()
	w.beforeWrite = nil
	w.changeLeader()
}

// hear delivers some events to the caches, each in any order.
func (w *world) hear(random *rand.Rand) {
	w.hearAsLeader(random)
	if w.standby != nil && random.IntN(2) == 0 {
		w.operator, w.standby = w.standby, w.operator
		w.hearAsLeader(random)
		w.operator, w.standby = w.standby, w.operator
	}
}

// hearAsLeader delivers some events to the cache of the operator that leads.
func (w *world) hearAsLeader(random *rand.Rand) {
	if random.IntN(2) == 0 {
		w.hearOfJob()
	}
	if random.IntN(2) == 0 {
		w.hearOfMembers()
	}
	for _, name := range w.unheard() {
		if random.IntN(2) == 0 {
			w.hearOfPod(name)
		}
	}
	for _, name := range w.unheardServices() {
		if random.IntN(4) == 0 {
			w.hearOfService(name)
		}
	}
	if random.IntN(2) == 0 {
		w.hearOfGroup()
	}
	if random.IntN(2) == 0 {
		w.hearOfNodes()
	}
}

// anyFate returns the outcomes of a reconcile's writes, which mostly succeed.
func anyFate(random *rand.Rand) func() fate {
	odds := []int{0, 0, 2, 8}[random.IntN(4)]
	return func() fate {
		if random.IntN(10) >= odds {
			return written
		}
		return fate(1 + random.IntN(4))
	}
}

// befallPod applies an event of a kubelet, a user or a node to one or more pods.
func (w *world) befallPod(random *rand.Rand) {
	pods := w.podNames()
	if len(pods) == 0 {
		return
	}
	name := pods[random.IntN(len(pods))]
	choice := random.IntN(26)
	if w.isTraced {
		w.tell("%d befalls %s", choice, outlinePod(w.pods[name]))
	}
	switch {
	case podstate.Terminating(w.pods[name]) || choice < 2:
		w.leave(name, choice)
	case choice < 10:
		for _, each := range pods {
			w.toRun(each)
		}
	case choice == 10:
		delete(w.pods, name)
	case choice == 11:
		w.terminate(name)
	case choice == 12:
		w.loseNode(random)
		w.reapGroup()
	case choice == 13:
		clear(w.pods)
	case choice < 17:
		w.toRun(name)
		w.toEnd(name, 0)
	case choice == 17:
		w.toRun(name)
		w.toOutlive(name, []int32{0, 0, 1}[random.IntN(3)])
	case choice == 25:
		w.toStall(name)
	default:
		w.toRun(name)
		w.toFail(name, choice)
	}
}

// leave advances a terminating pod: it exits by itself first, stays longer, or is removed.
func (w *world) leave(name string, choice int) {
	switch pod := w.pods[name]; {
	case !podstate.Terminating(pod):
		w.terminate(name)
	case !podstate.Finished(pod) && choice < 12:
		w.end(name, []int32{0, 1, state.ExitTerminated}[choice%3])
	case choice < 20:
		delete(w.pods, name)
	}
}

func (w *world) toRun(name string) {
	if pod := w.pods[name]; !podstate.Finished(pod) && !podstate.OnlyInjectedRun(pod) && !podstate.Terminating(pod) && pod.Status.Phase != corev1.PodUnknown && w.schedule(pod) {
		w.run(name)
	}
}

// toStall makes a pod that has not started unschedulable.
func (w *world) toStall(name string) {
	pod := w.pods[name]
	if podstate.Phase(pod) == corev1.PodPending && pod.Spec.NodeName == "" && !podstate.Terminating(pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
		}}
	}
}

func (w *world) toEnd(name string, code int32) {
	pod := w.pods[name]
	if podstate.Finished(pod) || podstate.OnlyInjectedRun(pod) || podstate.Terminating(pod) || mayStart(pod) && !w.hasNodes(pod) || !w.schedule(pod) {
		return
	}
	w.end(name, code)
	if code == 0 {
		w.history.succeeded[replicaKey(name, podstate.Attempt(pod), podstate.Reschedule(pod))] = true
	}
	if state.HasFailed(w.job, pod) {
		w.history.failedIn[podstate.Attempt(pod)] = true
	}
}

// toOutlive terminates a pod's own containers while an injected container continues.
func (w *world) toOutlive(name string, code int32) {
	pod := w.pods[name]
	if podstate.Finished(pod) || podstate.Terminating(pod) || podstate.OnlyInjectedRun(pod) || pod.Status.Phase != corev1.PodRunning {
		return
	}
	w.outlive(name, code)
	if code == 0 {
		w.history.succeeded[replicaKey(name, podstate.Attempt(pod), podstate.Reschedule(pod))] = true
	} else {
		w.history.failedIn[podstate.Attempt(pod)] = true
	}
}

// toFail makes a pod fail in one of the possible ways.
func (w *world) toFail(name string, choice int) {
	pod := w.pods[name]
	if podstate.Finished(pod) || podstate.OnlyInjectedRun(pod) || podstate.Terminating(pod) || mayStart(pod) && !w.hasNodes(pod) || !w.schedule(pod) {
		return
	}
	switch choice {
	case 18, 19:
		w.toEnd(name, 1)
	case 20:
		w.toEnd(name, 137)
		pod.Status.ContainerStatuses[0].State.Terminated.Reason = v2alpha1.ReasonOOMKilled
	case 21:
		w.toEnd(name, state.ExitTerminated)
	case 22:
		w.evict(name)
	case 23:
		w.overuse(name)
		w.history.failedIn[podstate.Attempt(pod)] = true
	default:
		pod.Status.Phase, pod.Status.Conditions = corev1.PodUnknown, nil
		w.history.failedIn[podstate.Attempt(pod)] = true
	}
}

// loseNode removes a node. The pods on it are marked and deleted, or disappear.
func (w *world) loseNode(random *rand.Rand) {
	node := string(rune('a' + random.IntN(2)))
	for _, name := range w.podNames() {
		pod := w.pods[name]
		isThere := pod.Spec.NodeName == node || pod.Spec.NodeName == "" && random.IntN(3) == 0
		switch {
		case !isThere || podstate.Terminating(pod):
		case random.IntN(2) == 0:
			delete(w.pods, name)
		default:
			if !podstate.Finished(pod) {
				pod.Status.Phase, pod.Status.Conditions = corev1.PodFailed, disrupted()
			}
			w.terminate(name)
		}
	}
}

// befallNodes makes another program delete a ConfigMap or replace its content.
func (w *world) befallNodes(random *rand.Rand) {
	held := slices.Sorted(maps.Keys(w.configMaps))
	if len(held) == 0 {
		return
	}
	name := held[random.IntN(len(held))]
	w.history.taken[name] = true
	if forged := w.configMaps[name].DeepCopy(); random.IntN(3) == 0 {
		forged.UID, forged.Data[names.EnvDINodes] = types.UID(fmt.Sprintf("forged-%d", w.now.UnixNano())), "other.di-job.space.svc.cluster.local"
		w.configMaps[name] = forged
		w.tell("somebody replaces ConfigMap %s", name)
		return
	}
	delete(w.configMaps, name)
	w.tell("somebody deletes ConfigMap %s", name)
}

// befallJob makes a user or the allocator write the job.
func (w *world) befallJob(random *rand.Rand) {
	if choice := random.IntN(12); w.job.Spec.Preemptible && !w.hasAllocator() && choice < 5 {
		w.changeAs(operatorAccount, "status", func(job *v2alpha1.DIJob) { job.Status.Allocation = anyAllocation(random, random.IntN(7)) })
	} else {
		edit := changeSpec
		if state.IsCoordinatorLed(w.job) {
			edit = changeLedSpec
		}
		w.changeAs(userAccount, "", func(job *v2alpha1.DIJob) { edit(&job.Spec, random) })
	}
	w.tell("the job is changed: replicas %d, allocation %v, suspended %v, wanted %d by task %v from %s on",
		w.job.Status.Replicas, w.job.Status.Allocation, state.IsSuspended(w.job), sizing.Wanted(w.job).Total, sizing.Wanted(w.job).ByTask, w.job.Spec.Tasks[0].Type)
}

// changeSpec makes a random change of a worker-led job.
func changeSpec(spec *v2alpha1.DIJobSpec, random *rand.Rand) {
	switch choice := random.IntN(10); {
	case choice == 0:
		slices.Reverse(spec.Tasks[random.IntN(2):])
	case choice < 4:
		spec.Tasks[random.IntN(3)].Replicas = ptr.To(random.Int32N(4))
	case choice < 6:
		if spec.Elastic == nil {
			spec.Elastic = &v2alpha1.Elastic{}
		}
		spec.Elastic.Replicas = ptr.To(random.Int32N(4))
	case choice < 8:
		spec.Suspend = ptr.To(!ptr.Deref(spec.Suspend, false))
	default:
		spec.CleanPodPolicy = v2alpha1.CleanPodPolicyAll
	}
}

// calm ends the faults, and compares the job with its desired state.
func (w *world) calm(random *rand.Rand) {
	w.tell("faults stop")
	w.rest()
	w.unsuspend(random)
	for range 10 {
		// Delays may count from a time by another clock.
		w.now = w.now.Add(disruptions.FirstBackoff + w.clocks.spread())
		w.rest()
		if state.IsFinished(&w.job.Status) {
			break
		}
		for _, name := range w.podNames() {
			w.toRun(name)
		}
		w.rest()
		if phase := w.job.Status.Phase; phase != v2alpha1.JobRunning && sizing.Wanted(w.job).Total > 0 && !state.IsFinished(&w.job.Status) && !w.hasFailedPods() {
			w.t.Fatalf("the job is %s though all its pods run: %s", phase, w.outline())
		}
		for _, name := range w.podNames() {
			w.toEnd(name, 0)
		}
	}
	w.rest()
	w.checkHowItEnded()
	w.checkHowPlansEnded()
}

// hasAllocator reports whether an allocator places the job.
func (w *world) hasAllocator() bool { return w.fleet != nil && w.fleet.policy != "" }

// unsuspend makes the job want at least one replica, and have a place for all.
func (w *world) unsuspend(random *rand.Rand) {
	w.change(func(job *v2alpha1.DIJob) {
		job.Spec.Suspend = nil
		job.Spec.Tasks[0].Replicas = ptr.To(int32(1))
		if job.Spec.Preemptible && !w.hasAllocator() {
			job.Status.Allocation = anyAllocation(random, 1+int(*job.Spec.Tasks[1].Replicas+*job.Spec.Tasks[2].Replicas))
		}
	})
}

func (w *world) hasFailedPods() bool {
	return slices.ContainsFunc(w.podNames(), func(name string) bool { return w.pods[name].Status.Phase == corev1.PodFailed })
}

func (w *world) outline() string {
	var pods []*corev1.Pod
	for _, name := range w.podNames() {
		pods = append(pods, w.pods[name])
	}
	return outlinePods(pods)
}

// rest resyncs the cache, and reconciles and removes terminating pods until nothing changes.
func (w *world) rest() {
	for range 60 {
		w.allAcknowledge()
		w.resync()
		changed := w.step()
		if !w.reap() && !changed && (!w.hasAllocator() || !w.fleet.makesRoom(w)) {
			w.checkRest()
			return
		}
	}
	w.t.Fatalf("the operator comes to no rest")
}

// checkHowItEnded checks that a job fails only because of its failures or its deadline, and
// otherwise succeeds.
func (w *world) checkHowItEnded() {
	status := &w.job.Status
	switch limit := w.job.Spec.BackoffLimit; {
	case sizing.Wanted(w.job).Total == 0:
	case status.Phase == v2alpha1.JobSucceeded:
	case status.Phase != v2alpha1.JobFailed:
		w.t.Fatalf("left in peace the job is %s: %s", status.Phase, w.outline())
	case status.LastFailure.Reason == v2alpha1.ReasonDeadlineExceeded:
	case limit != nil && *limit < 0:
		w.t.Fatalf("a job without limit has failed")
	case !w.history.failedIn[status.Restarts]:
		w.t.Fatalf("the job has failed though nothing failed in its last attempt")
	}
}
