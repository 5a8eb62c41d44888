// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/server/store"
)

// published returns the published membership; nil for none.
func published(job *v2alpha1.DIJob) *v2alpha1.PublishedMembership {
	if job.Status.Scaling == nil {
		return nil
	}
	return job.Status.Scaling.Membership
}

// isMember reports whether a pod runs and the published membership lists it.
func (w *world) isMember(pod *corev1.Pod) bool {
	list := published(w.job)
	return list != nil && pod.Status.Phase == corev1.PodRunning && !podstate.Terminating(pod) && !state.IsStale(pod, &w.job.Status) &&
		w.listed[list.Version][pod.UID]
}

// recordListed records by UID which pods a new version of the membership means: those that its operator saw run
// with an active rank. They may hold state from then on, so the later versions list them while they run.
func (w *world) recordListed(observed *Observed, status *v2alpha1.DIJobStatus, restored []*corev1.Pod) {
	before, list := published(observed.Job), published(&v2alpha1.DIJob{Status: *status})
	if list == nil || before != nil && before.Version == list.Version {
		return
	}
	w.listed[list.Version] = map[types.UID]bool{}
	for _, pod := range observed.Pods {
		rank := podstate.Rank(asRestored(restored, pod))
		isActive := isRankIn(rank, list.Active)
		switch {
		case pod.Status.Phase != corev1.PodRunning, podstate.Terminating(pod), state.IsStale(pod, status):
		case isActive:
			w.listed[list.Version][pod.UID] = true
		case before != nil && w.listed[before.Version][pod.UID] && !podstate.OnlyInjectedRun(pod) && !hasTwin(observed.Pods, pod):
			w.t.Fatalf("pod %s runs and version %d no longer lists it: %+v", pod.Name, list.Version, list)
		}
		switch _, isLeaving := w.leaves[pod.UID]; {
		case !isRankIn(rank, list.Leaving):
			delete(w.leaves, pod.UID)
		case !isLeaving:
			w.leaves[pod.UID] = w.now
		}
	}
}

// asRestored returns a pod as the operator puts it back.
func asRestored(restored []*corev1.Pod, pod *corev1.Pod) *corev1.Pod {
	if at := slices.IndexFunc(restored, func(other *corev1.Pod) bool { return other.UID == pod.UID }); at >= 0 {
		return restored[at]
	}
	return pod
}

// acknowledge makes members read the current membership and acknowledge it, as di-server records it.
func (w *world) acknowledge(members ...string) {
	list := published(w.job)
	for _, name := range members {
		pod := w.pod(name)
		if !w.isMember(pod) {
			continue
		}
		w.knows[pod.UID] = list.Version
		if list.Acknowledge > 0 {
			w.acknowledgeAs(pod, "")
		}
	}
}

// acknowledgeAs makes a member acknowledge the current membership, or refuse it for a reason.
func (w *world) acknowledgeAs(pod *corev1.Pod, refusal string) {
	w.t.Helper()
	w.acknowledgeVersion(pod, published(w.job).Acknowledge, refusal)
}

// acknowledgeVersion makes a member acknowledge a version, or refuse it for a reason.
func (w *world) acknowledgeVersion(pod *corev1.Pod, version int64, refusal string) {
	w.t.Helper()
	ack := store.Ack{Version: version, Pod: pod.Name, Rank: podstate.Rank(pod), Refuse: refusal != "", Reason: refusal}
	if err := w.server.acknowledge(ack); err != nil {
		w.t.Fatalf("pod %s cannot acknowledge: %v", pod.Name, err)
	}
}

// acknowledgeLate makes a member acknowledge the version that it read the last time, and read the current one.
func (w *world) acknowledgeLate(pod *corev1.Pod) {
	w.t.Helper()
	if !w.isMember(pod) {
		return
	}
	if read := w.unacknowledged[pod.UID]; read > 0 {
		w.knows[pod.UID] = max(w.knows[pod.UID], read)
		w.acknowledgeVersion(pod, read, "")
	} else if _, isTold := w.knows[pod.UID]; !isTold {
		w.knows[pod.UID] = 0
	}
	w.unacknowledged[pod.UID] = published(w.job).Acknowledge
}

// refuse makes a member refuse the current membership.
func (w *world) refuse(name, reason string) {
	if list := published(w.job); list.Acknowledge > 0 && w.isMember(w.pod(name)) {
		w.acknowledgeAs(w.pod(name), reason)
	}
}

// anyMemberReads makes a pod read the membership, and mostly acknowledge it.
func (w *world) anyMemberReads(random *rand.Rand) {
	pods := w.podNames()
	list := published(w.job)
	if len(pods) == 0 || list == nil {
		return
	}
	name := pods[random.IntN(len(pods))]
	choice := random.IntN(10)
	w.tell("%d: %s reads membership %d, %q active, %q leaving", choice, name, list.Version, list.Active, list.Leaving)
	switch pod := w.pods[name]; {
	case choice == 0:
		w.refuse(name, "no")
	case choice == 1:
		if _, known := w.knows[pod.UID]; !known && w.isMember(pod) {
			w.knows[pod.UID] = 0
		}
	case choice < 6:
		w.acknowledge(pods...)
	case choice == 9:
		for _, slow := range pods {
			w.acknowledgeLate(w.pods[slow])
		}
	default:
		w.acknowledge(name)
	}
}

// allAcknowledge makes all members acknowledge what some must.
func (w *world) allAcknowledge() {
	if list := published(w.job); list != nil && list.Acknowledge > 0 {
		w.acknowledge(w.podNames()...)
	}
}

// checkRelease checks that a pod that holds state is deleted by intent only after every member that
// may use it has acknowledged that, or at its timeout.
func (w *world) checkRelease(observed *Observed, decision *Decision, pod *corev1.Pod) {
	w.t.Helper()
	drain, list, stored := drainOf(observed.Job, pod), published(observed.Job), w.pods[pod.Name]
	switch {
	case stored == nil, stored.UID != pod.UID, podstate.Terminating(stored):
		// An operator whose cache is behind deletes it again.
		return
	case drain == nil, state.IsSuspended(observed.Job), state.IsFinished(&observed.Job.Status), state.IsFinished(&decision.Status),
		state.IsStale(pod, &decision.Status), pod.Status.Phase != corev1.PodRunning, hasTwin(observed.Pods, pod),
		isRankIn(podstate.Rank(pod), observed.Job.Status.CompletedRanks):
		return
	case list == nil:
		w.t.Fatalf("pod %s holds state and is deleted without a handshake", pod.Name)
	case !w.listed[list.Version][pod.UID]:
		return
	case !isRankIn(podstate.Rank(pod), list.Leaving):
		w.t.Fatalf("pod %s holds state and is deleted although it is not leaving: %+v", pod.Name, list)
	}
	if drain.OnTimeout == v2alpha1.DrainRemove && !w.now.Before(w.leaves[pod.UID].Add(time.Duration(*drain.TimeoutSeconds)*time.Second)) {
		return
	}
	for name, other := range w.pods {
		version, isTold := w.knows[other.UID]
		if isTold && version < list.Acknowledge && other.Status.Phase == corev1.PodRunning && !podstate.OnlyInjectedRun(other) && !podstate.Terminating(other) {
			w.t.Fatalf("pod %s is deleted in version %d, but %s knows version %d", pod.Name, list.Acknowledge, name, version)
		}
	}
}

// drainOf returns how a pod's task is drained, nil for a pod that holds no state.
func drainOf(job *v2alpha1.DIJob, pod *corev1.Pod) *v2alpha1.Drain {
	for i := range job.Spec.Tasks {
		if task := &job.Spec.Tasks[i]; names.TaskName(task) == names.RoleOrTask(pod) {
			return task.Drain
		}
	}
	return nil
}

// isKept reports whether a pod stays because its removal failed.
func (w *world) isKept(pod *corev1.Pod) bool {
	list := published(w.job)
	return list != nil && isRankIn(podstate.Rank(pod), list.Kept)
}

// checkHandshakeAtRest checks that no handshake hangs once all members have acknowledged it.
func (w *world) checkHandshakeAtRest() {
	w.t.Helper()
	if list := published(w.job); list != nil && list.Leaving != "" && !state.IsFinished(&w.job.Status) && !state.IsSuspended(w.job) {
		w.t.Fatalf("the handshake hangs: %+v, %+v", list, w.job.Status.MembershipAcks)
	}
}
