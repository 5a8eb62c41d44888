// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
)

// ledHistory is what a coordinator-led job asked for and what happened to its pods, to check the operator.
type ledHistory struct {
	// asked are the numbers of replicas that requests and plans left, by role.
	asked map[v2alpha1.TaskType]int
	// instance is the coordinator that asked last.
	instance string
	// last is the last request with its answer; nil for none.
	last *ledRequest
	// dismissed is when pods were reported as failed, by name, and when slots were removed.
	dismissed map[string]time.Time
	// unwell are the pods that something else than the operator ended or marked.
	unwell map[types.UID]bool
	// heads counts the pods that each slot got, without DDP learners.
	heads map[string]int
	// mayFail and mayEnd are set if a coordinator failed, and if one succeeded.
	mayFail, mayEnd bool
}

// ledRequest is a request of a coordinator with its answer.
type ledRequest struct {
	membership.Request
	edit   membership.Edit
	at     time.Time
	answer membership.URLs
}

func newLedHistory() ledHistory {
	return ledHistory{asked: map[v2alpha1.TaskType]int{}, dismissed: map[string]time.Time{}, unwell: map[types.UID]bool{}, heads: map[string]int{}}
}

// anyLedSpec returns a coordinator-led job.
func anyLedSpec(random *rand.Rand) v2alpha1.DIJobSpec {
	spec := ledJob()
	spec.CleanPodPolicy = []v2alpha1.CleanPodPolicy{"", v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone}[random.IntN(3)]
	if random.IntN(20) == 0 {
		spec.ActiveDeadlineSeconds = ptr.To(int64(60))
	}
	if random.IntN(3) == 0 {
		spec.Tasks[1].Drain = &v2alpha1.Drain{TimeoutSeconds: ptr.To(1 + random.Int32N(60)), OnTimeout: v2alpha1.DrainRemove}
	}
	return spec
}

// changeLedSpec makes a random change of a coordinator-led job.
func changeLedSpec(spec *v2alpha1.DIJobSpec, random *rand.Rand) {
	if random.IntN(3) == 0 {
		spec.CleanPodPolicy = v2alpha1.CleanPodPolicyAll
		return
	}
	spec.Suspend = ptr.To(!ptr.Deref(spec.Suspend, false))
}

// befallCoordinator makes the coordinator, or a user, ask di-server for other replicas, or report failed ones.
func (w *world) befallCoordinator(random *rand.Rand) {
	pod := w.pods[coordinator]
	if pod == nil || pod.Status.Phase != corev1.PodRunning || podstate.Terminating(pod) || w.membership == nil || state.IsSuspended(w.job) || state.IsFinished(&w.job.Status) {
		return
	}
	if last := w.led.last; last != nil && random.IntN(5) == 0 {
		w.repeat(last)
		return
	}
	w.uids++
	request := &ledRequest{Request: membership.Request{
		Container: membership.Instance(pod), IdempotencyKey: fmt.Sprintf("key-%d", w.uids), Content: []byte("content"),
	}}
	collectors, learners := random.Int32N(3), random.Int32N(2)
	switch choice := random.IntN(6); {
	case choice < 3:
		grow := membership.Grow{Job: w.job.Name, MaxMembers: 8, Random: suffixes(random), Demands: []membership.Demand{
			{Task: v2alpha1.TaskTypeCollector, Replicas: collectors}, {Task: v2alpha1.TaskTypeLearner, Replicas: learners},
		}}
		if random.IntN(2) == 0 {
			grow.Demands[1].DDPGPUs = []int32{2, 1}
		}
		if random.IntN(4) > 0 {
			grow.Coordinator = request.Container
		}
		request.edit = grow
	case choice < 5:
		request.Removal, request.Confirmed = true, true
		request.edit = membership.Shrink{Job: w.job.Name, Collectors: collectors, Learners: learners}
	default:
		request.edit = membership.Replace{Job: w.job.Name, By: names.ReplicaTypeCoordinator, Pods: w.anyMembers(random)}
	}
	w.request(request)
}

// suffixes returns a source of suffixes of names.
func suffixes(random *rand.Rand) membership.Random {
	return func(length int) string {
		text := make([]byte, length)
		for i := range text {
			text[i] = byte('a' + random.IntN(26))
		}
		return string(text)
	}
}

// anyMembers returns the name of a replica, or none.
func (w *world) anyMembers(random *rand.Rand) []string {
	found := slices.DeleteFunc(w.podNames(), func(name string) bool { return name == coordinator })
	if len(found) == 0 {
		return nil
	}
	return []string{found[random.IntN(len(found))]}
}

// request makes di-server answer a request, and records what it tells.
func (w *world) request(asked *ledRequest) {
	w.t.Helper()
	before := w.membership.DeepCopy()
	urls, err := w.server.Edit(context.Background(), w.job.DeepCopy(), asked.Request, asked.edit)
	w.tell("%T is told %v, %v", asked.edit, urls, err)
	if err != nil {
		if diff := cmp.Diff(before.Spec.Members, w.membership.Spec.Members); diff != "" {
			w.t.Fatalf("a request fails with %v and changes the members (-before +after):\n%s", err, diff)
		}
		return
	}
	asked.at, asked.answer, w.led.last = w.now, urls, asked
	w.led.record(w, asked)
}

// record records what a request asked for.
func (h *ledHistory) record(w *world, asked *ledRequest) {
	told := map[v2alpha1.TaskType]int{v2alpha1.TaskTypeCollector: len(asked.answer.Collectors), v2alpha1.TaskTypeLearner: len(asked.answer.Learners)}
	switch edit := asked.edit.(type) {
	case membership.Grow:
		isRestarted := edit.Coordinator != "" && h.instance != "" && edit.Coordinator != h.instance
		if edit.Coordinator != "" {
			h.instance = edit.Coordinator
		}
		for _, demand := range edit.Demands {
			if isRestarted {
				// A coordinator that starts again asks for what its predecessor had.
				h.asked[demand.Task] = max(h.asked[demand.Task], int(demand.Replicas))
			} else {
				h.asked[demand.Task] += int(demand.Replicas)
			}
			if told[demand.Task] != h.asked[demand.Task] && isRestarted || told[demand.Task] != int(demand.Replicas) && !isRestarted {
				w.t.Fatalf("%d %ss are asked for, %d in all, and told are %v", demand.Replicas, demand.Task, h.asked[demand.Task], asked.answer)
			}
		}
	case membership.Shrink:
		for task, most := range map[v2alpha1.TaskType]int32{v2alpha1.TaskTypeCollector: edit.Collectors, v2alpha1.TaskTypeLearner: edit.Learners} {
			if want := min(h.asked[task], int(most)); told[task] != want {
				w.t.Fatalf("%d %ss of %d are asked away, and told are %v", most, task, h.asked[task], asked.answer)
			}
			h.asked[task] -= told[task]
		}
	case membership.Replace:
		for _, name := range edit.Pods {
			h.dismiss(w, name)
		}
	}
}

// dismiss records that the pods of a reported replica are to go. A unit goes as a whole.
func (h *ledHistory) dismiss(w *world, name string) {
	h.dismissed[name] = w.now
	reported := w.pods[name]
	if reported == nil {
		return
	}
	for _, pod := range w.pods {
		if unitOf(pod) == unitOf(reported) {
			h.dismissed[pod.Name] = w.now
		}
	}
}

// unitOf returns what identifies the unit of a pod: the UID of its aggregator, and its own if it has none.
func unitOf(pod *corev1.Pod) types.UID {
	if names.RoleOf(pod) == names.ReplicaTypeDDPLearner {
		for _, owner := range pod.OwnerReferences {
			if owner.Kind == "Pod" {
				return owner.UID
			}
		}
	}
	return pod.UID
}

func slotOfPod(pod *corev1.Pod) string { return pod.Annotations[names.AnnotationSlot] }

// repeat repeats a request, which must be answered as before and change nothing.
func (w *world) repeat(last *ledRequest) {
	w.t.Helper()
	if w.now.Sub(last.at) > membership.KeyWindow/2 {
		return
	}
	before := w.membership.DeepCopy()
	urls, err := w.server.Edit(context.Background(), w.job.DeepCopy(), last.Request, last.edit)
	w.tell("%T is repeated: %v, %v", last.edit, urls, err)
	if diff := cmp.Diff(last.answer, urls) + cmp.Diff(before.Spec.Members, w.membership.Spec.Members); err != nil || diff != "" {
		w.t.Fatalf("a repeated request is answered otherwise, or changes the members: %v\n%s", err, diff)
	}
}

// recordMembers records members that another list does not have any more.
func (h *ledHistory) recordMembers(before, after *v2alpha1.MembershipSpec, now time.Time) {
	for i := range before.Members {
		if membership.BySlot(after, before.Members[i].Slot) == nil {
			h.dismissed[before.Members[i].Slot] = now
		}
	}
}

// recordPlan records the numbers of members that a plan has set.
func (h *ledHistory) recordPlan(record *v2alpha1.PlanRecord) {
	for task, count := range record.Replicas {
		h.asked[v2alpha1.TaskType(task)] = int(count)
	}
}

// recordList records the members of a list that the operator has built, of the pods that there are or of none.
func (h *ledHistory) recordList(spec *v2alpha1.MembershipSpec) {
	clear(h.asked)
	// The first coordinator that asks for replicas of a list that was rebuilt counts as one that has started again.
	h.last, h.instance = nil, spec.CoordinatorInstance
	for i := range spec.Members {
		h.asked[spec.Members[i].Task]++
		delete(h.dismissed, spec.Members[i].Slot)
	}
}

// isHead reports whether a pod stands for a replica.
func isHead(pod *corev1.Pod) bool {
	role := names.RoleOf(pod)
	return role != names.ReplicaTypeCoordinator && role != names.ReplicaTypeDDPLearner
}

// knowsMembers reports whether the operator that leads has the members and their losses in its cache.
func (w *world) knowsMembers() bool {
	known := w.cache.membership
	return known != nil && w.membership != nil && known.Status.Losses == w.membership.Status.Losses &&
		equality.Semantic.DeepEqual(known.Spec.Members, w.membership.Spec.Members)
}

// harm records that something else than the operator ends or marks pods.
func (w *world) harm(pods ...*corev1.Pod) {
	for _, pod := range pods {
		w.led.unwell[pod.UID] = true
	}
}

// noteHarm records the pods that an event has ended, marked or removed since before.
func (w *world) noteHarm(before map[string]*corev1.Pod) {
	for name, pod := range before {
		stored := w.pods[name]
		if stored == nil || stored.UID != pod.UID {
			w.harm(pod)
		} else if podstate.Terminating(stored) || podstate.Finished(stored) || podstate.OnlyInjectedRun(stored) || podstate.Disrupted(stored) ||
			stored.Status.Phase == corev1.PodUnknown || podstate.MainTermination(stored) != nil {
			w.harm(stored)
		}
	}
}

// dismissal returns when a pod was first asked away.
func (w *world) dismissal(pod *corev1.Pod) (at time.Time, isDismissed bool) {
	for _, key := range []string{pod.Name, slotOfPod(pod)} {
		if since, isKnown := w.led.dismissed[key]; isKnown && key != "" && (!isDismissed || since.Before(at)) {
			at, isDismissed = since, true
		}
	}
	return at, isDismissed
}

func (w *world) isDismissed(pod *corev1.Pod) bool {
	_, isDismissed := w.dismissal(pod)
	return isDismissed
}

// checkLedDecision checks that no pod that is well is deleted, unless it was asked away and had its time to drain.
func (w *world) checkLedDecision(observed *Observed, decision *Decision) {
	w.t.Helper()
	isEnding := state.IsFinished(&observed.Job.Status) || state.IsFinished(&decision.Status) || !observed.Job.DeletionTimestamp.IsZero()
	if state.IsSuspended(observed.Job) || isEnding {
		return
	}
	for _, pod := range decision.DeletePods {
		stored := w.pods[pod.Name]
		// An operator whose cache is behind deletes again what is being deleted.
		isGone := stored == nil || stored.UID != pod.UID || podstate.Terminating(stored)
		if isGone || w.led.unwell[pod.UID] || isMigrated(observed.Job, pod) || isUnit(pod) && w.isUnitBroken(pod) {
			continue
		}
		switch at, isDismissed := w.dismissal(stored); {
		case !isDismissed:
			w.t.Fatalf("pod %s is well and was not asked away, and is deleted; there are %s", pod.Name, w.outline())
		case w.now.Before(at.Add(state.DefaultDrain)):
			w.t.Fatalf("pod %s is deleted %s after it was asked away", pod.Name, w.now.Sub(at))
		}
		// A replica that was reported failed has nothing to hand over.
		if _, isReported := w.led.dismissed[pod.Name]; !isReported {
			w.checkRelease(observed, decision, pod)
		}
	}
}

func isUnit(pod *corev1.Pod) bool {
	role := names.RoleOf(pod)
	return role == names.ReplicaTypeAggregator || role == names.ReplicaTypeDDPLearner
}

// isUnitBroken reports whether a pod of the same unit is unwell, going or gone, or belongs to another incarnation.
func (w *world) isUnitBroken(pod *corev1.Pod) bool {
	count, isUnwell := 0, false
	for _, other := range w.pods {
		if slotOfPod(other) == slotOfPod(pod) {
			count++
			isUnwell = isUnwell || w.led.unwell[other.UID] || podstate.Terminating(other)
		}
	}
	return isUnwell || w.led.heads[slotOfPod(pod)] > 1 || count < 3
}

// checkLed checks the invariants of every moment.
func (w *world) checkLed() {
	w.t.Helper()
	ranks, slots := map[string]string{}, map[string]string{}
	for _, name := range w.podNames() {
		pod := w.pods[name]
		if podstate.Terminating(pod) || !podstate.Active(pod) || w.led.unwell[pod.UID] || w.isDismissed(pod) {
			continue
		}
		if rank := pod.Annotations[names.AnnotationRank]; rank != "" && w.isDecidedSynced {
			if other := ranks[rank]; other != "" {
				w.t.Fatalf("rank %s is held by %s and %s", rank, other, name)
			}
			ranks[rank] = name
		}
		if slot := slotOfPod(pod); slot != "" && isHead(pod) {
			if other := slots[slot]; other != "" && w.isDecidedSynced {
				w.t.Fatalf("slot %s is filled by %s and %s", slot, other, name)
			}
			slots[slot] = name
		}
	}
	if w.membership == nil {
		return
	}
	for i := range w.membership.Status.Slots {
		if slot := &w.membership.Status.Slots[i]; int(slot.Losses) > w.led.heads[slot.Slot] {
			w.t.Fatalf("%d losses of slot %s are counted, which got %d pods", slot.Losses, slot.Slot, w.led.heads[slot.Slot])
		}
	}
}

// checkLedEnd checks that a job ends only with its coordinator, or at its deadline.
func (w *world) checkLedEnd(status *v2alpha1.DIJobStatus) {
	w.t.Helper()
	switch {
	case status.Phase == v2alpha1.JobSucceeded && !w.led.mayEnd:
		w.t.Fatal("the job has succeeded, and no coordinator has")
	case status.Phase == v2alpha1.JobFailed && !w.led.mayFail && status.LastFailure.Reason != v2alpha1.ReasonDeadlineExceeded:
		w.t.Fatalf("the job has failed, and no coordinator has: %+v", status.LastFailure)
	}
}

// checkLedRest checks that a suspended job has nothing, and a finished one what its policy keeps.
func (w *world) checkLedRest() {
	w.t.Helper()
	switch {
	case state.IsFinished(&w.job.Status):
		if len(w.services) > 0 {
			w.t.Fatal("a finished job has services")
		}
		for name, pod := range w.pods {
			if w.job.Spec.CleanPodPolicy == v2alpha1.CleanPodPolicyAll || w.job.Spec.CleanPodPolicy != v2alpha1.CleanPodPolicyNone && podstate.Active(pod) && podstate.MainTermination(pod) == nil {
				w.t.Fatalf("a finished job with policy %q has pod %s", w.job.Spec.CleanPodPolicy, name)
			}
		}
	case state.IsSuspended(w.job):
		if len(w.pods)+len(w.services) > 0 || w.membership != nil {
			w.t.Fatalf("a suspended job has %s, services and a Membership", w.outline())
		}
	default:
		for name := range w.services {
			if w.pods[name] == nil {
				w.t.Fatalf("service %s has no pod", name)
			}
		}
	}
}

// checkMembers checks that exactly the replicas exist that were asked for, and each with its service.
func (w *world) checkMembers() {
	w.t.Helper()
	found := map[v2alpha1.TaskType]int{}
	for name, pod := range w.pods {
		if w.services[name] == nil {
			w.t.Fatalf("pod %s has no service", name)
		}
		if w.isDismissed(pod) && !w.isKept(pod) {
			w.t.Fatalf("pod %s was asked away and is there", name)
		}
		if !isHead(pod) || w.isKept(pod) {
			continue
		}
		task := v2alpha1.TaskTypeLearner
		if names.RoleOf(pod) == names.ReplicaTypeCollector {
			task = v2alpha1.TaskTypeCollector
		}
		found[task]++
	}
	for _, task := range []v2alpha1.TaskType{v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		if found[task] != w.led.asked[task] {
			w.t.Fatalf("%d %ss are asked for, and %d are there: %s", w.led.asked[task], task, found[task], w.outline())
		}
	}
}

// befallLedPod is befallPod for a coordinator-led job. Its coordinator is mostly spared, because the job ends with it.
func (w *world) befallLedPod(random *rand.Rand) {
	before := map[string]*corev1.Pod{}
	for name, pod := range w.pods {
		before[name] = pod.DeepCopy()
	}
	head := w.pods[coordinator]
	isSpared := head != nil && !podstate.Finished(head) && !podstate.Terminating(head) && random.IntN(8) > 0
	if isSpared {
		delete(w.pods, coordinator)
	}
	w.befallPod(random)
	if isSpared {
		w.pods[coordinator] = head
		if random.IntN(2) == 0 {
			w.toRun(coordinator)
		}
	}
	w.noteHarm(before)
	if pod := w.pods[coordinator]; pod != nil && w.led.unwell[pod.UID] {
		main := podstate.MainTermination(pod)
		w.led.mayEnd = w.led.mayEnd || main != nil && main.ExitCode == 0 || pod.Status.Phase == corev1.PodSucceeded
		w.led.mayFail = w.led.mayFail || main != nil && main.ExitCode != 0 || pod.Status.Phase == corev1.PodFailed
	}
}

// calmLed ends the faults of a coordinator-led job, and compares it with what was asked for.
func (w *world) calmLed() {
	w.tell("faults stop")
	w.rest()
	w.changeAs(userAccount, "", func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	for name, pod := range w.pods {
		// Kubernetes deletes the pods of a node that stays unreachable.
		if pod.Status.Phase == corev1.PodUnknown && !podstate.Terminating(pod) {
			w.terminate(name)
		}
	}
	for range 6 {
		// Losses of a replica delay the next pod by up to five minutes, from a time by another clock.
		w.now = w.now.Add(6*time.Minute + w.clocks.spread())
		for _, name := range w.podNames() {
			w.toRun(name)
		}
		w.rest()
	}
	if state.IsFinished(&w.job.Status) {
		w.checkHowPlansEnded()
		return
	}
	if w.job.Status.Phase != v2alpha1.JobRunning {
		w.t.Fatalf("the job is %s though all its pods run: %s", w.job.Status.Phase, w.outline())
	}
	w.checkMembers()
	w.checkHandshakeAtRest()
	w.led.mayEnd = true
	w.end(coordinator, 0)
	w.rest()
	if w.job.Status.Phase != v2alpha1.JobSucceeded {
		w.t.Fatalf("the coordinator has succeeded, and the job is %s", w.job.Status.Phase)
	}
	w.checkHowPlansEnded()
}

// anyLedPlan returns a plan for the replicas of a coordinator-led job, which may have to be refused.
func (w *world) anyLedPlan(random *rand.Rand) v2alpha1.ScalePlanSpec {
	spec := v2alpha1.ScalePlanSpec{DeadlineSeconds: ptr.To(1 + random.Int32N(200))}
	task := []string{string(v2alpha1.TaskTypeCollector), string(v2alpha1.TaskTypeLearner)}[random.IntN(2)]
	if pods := w.anyMembers(random); len(pods) > 0 && random.IntN(3) == 0 {
		spec.Migrate = []v2alpha1.PodMigration{{Pod: pods[0]}}
	} else {
		spec.Tasks = []v2alpha1.TaskScale{{Name: task, Replicas: ptr.To(random.Int32N(4))}}
	}
	return spec
}
