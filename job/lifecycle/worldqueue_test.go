// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// kueue simulates the behaviour of Kueue that jobs depend on: its webhook for new pods, and its
// controller of pods and groups. Its only quota is isOpen, and it ignores resources. It follows the
// source of Kueue's integration of plain pods, and is stricter. Some states, such as more pods than
// the size of a group, Kueue repairs or waits for without end. They fail the test here.
type kueue struct {
	// isOpen is set if there is quota for all groups.
	isOpen bool
	// groups are the groups that would have a Workload in Kueue, by name.
	groups map[string]*queuedGroup
	// finished are all groups that ever finished.
	finished map[string]bool
}

// queuedGroup is a group whose pods have all existed at the same time.
type queuedGroup struct {
	isAdmitted, finished bool
}

func newKueue() *kueue {
	return &kueue{isOpen: true, groups: map[string]*queuedGroup{}, finished: map[string]bool{}}
}

// takeUp is the webhook for new pods.
func (k *kueue) takeUp(pod *corev1.Pod) {
	if queueing.FromPod(pod).Queue == "" {
		return
	}
	pod.Labels[queueing.LabelManaged] = "true"
	pod.Finalizers = append(pod.Finalizers, queueing.Finalizer)
	pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: queueing.Gate})
	// The API server sets this condition on each pod with a scheduling gate.
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
	})
}

// queue performs all actions of Kueue that are due, and reports whether there were any.
func (w *world) queue() bool {
	if w.kueue == nil {
		return false
	}
	before := w.outlineQueue()
	members := map[string][]*corev1.Pod{}
	for _, name := range w.podNames() {
		pod := w.pods[name]
		switch meta := queueing.FromPod(pod); {
		case !queueing.IsManaged(pod):
		case meta.Group == "":
			w.queueAlone(pod)
		default:
			members[meta.Group] = append(members[meta.Group], pod)
		}
	}
	for name := range w.kueue.groups {
		if len(members[name]) == 0 {
			delete(w.kueue.groups, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		w.queueGroup(name, members[name])
	}
	return before != w.outlineQueue()
}

// outlineQueue returns the state that Kueue may change.
func (w *world) outlineQueue() string {
	var text strings.Builder
	for _, name := range w.podNames() {
		pod := w.pods[name]
		fmt.Fprintf(&text, "%s %d %d ", name, len(pod.Spec.SchedulingGates), len(pod.Finalizers))
	}
	for _, name := range slices.Sorted(maps.Keys(w.kueue.groups)) {
		group := w.kueue.groups[name]
		fmt.Fprintf(&text, "%s %v %v ", name, group.isAdmitted, group.finished)
	}
	return text.String()
}

func (w *world) queueAlone(pod *corev1.Pod) {
	switch {
	case podstate.Terminating(pod), podstate.Finished(pod):
		w.release(queueing.Release(pod))
	case w.kueue.isOpen:
		pod.Spec.SchedulingGates = nil
	}
}

// queueGroup advances a group. It exists once all its pods do, is admitted once there is quota, and
// is finished once all its pods have finished.
func (w *world) queueGroup(name string, pods []*corev1.Pod) {
	w.t.Helper()
	group, isWhole := w.kueue.groups[name], w.checkGroup(name, pods)
	if group == nil && isWhole {
		if w.kueue.finished[name] {
			w.t.Fatalf("group %s has finished and comes again", name)
		}
		group = &queuedGroup{}
		w.kueue.groups[name] = group
	}
	switch {
	case group == nil:
	case !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !podstate.Finished(pod) }):
		group.finished = true
		w.kueue.finished[name] = true
		fallthrough
	case group.finished:
		for _, pod := range pods {
			w.release(queueing.Release(pod))
		}
	case group.isAdmitted || w.kueue.isOpen:
		group.isAdmitted = true
		for _, pod := range pods {
			pod.Spec.SchedulingGates = nil
		}
	}
}

// checkGroup checks that all pods record the same group, and that there are not more than its size.
// It reports whether all of them exist.
func (w *world) checkGroup(name string, pods []*corev1.Pod) bool {
	w.t.Helper()
	first := queueing.FromPod(pods[0])
	active := 0
	for _, pod := range pods {
		if meta := queueing.FromPod(pod); meta != first {
			w.t.Fatalf("pods of group %s have meta %+v and %+v", name, first, meta)
		}
		if pod.Status.Phase != corev1.PodFailed && (!podstate.Terminating(pod) || podstate.Phase(pod) != corev1.PodPending) {
			active++
		}
	}
	if active > first.Size {
		w.t.Fatalf("group %s of %d has %d pods: %s", name, first.Size, active, outlinePods(pods))
	}
	return active == first.Size
}

// evictGroups evicts the admitted groups.
func (w *world) evictGroups() {
	for _, name := range slices.Sorted(maps.Keys(w.kueue.groups)) {
		w.evictGroup(name)
	}
}

// evictGroup evicts a group if it is admitted.
func (w *world) evictGroup(name string) {
	group := w.kueue.groups[name]
	if !group.isAdmitted || group.finished {
		return
	}
	group.isAdmitted = false
	for _, pod := range w.pods {
		if queueing.FromPod(pod).Group == name && podstate.Active(pod) && len(pod.Spec.SchedulingGates) == 0 {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
				Type: "TerminationTarget", Status: corev1.ConditionTrue, Message: "Preempted to accommodate a workload",
			})
			w.terminate(pod.Name)
		}
	}
}

// release removes finalizers from a pod. A pod that only they kept is then removed.
func (w *world) release(released *corev1.Pod) {
	stored := w.pods[released.Name]
	if stored == nil || stored.UID != released.UID {
		return
	}
	stored.Finalizers = released.Finalizers
	if podstate.Terminating(stored) && stored.DeletionGracePeriodSeconds != nil && len(stored.Finalizers) == 0 {
		delete(w.pods, stored.Name)
	}
}

// holdBack simulates kubelet and API server for a terminating pod with a finalizer.
func (w *world) holdBack(pod *corev1.Pod) {
	pod.DeletionGracePeriodSeconds = ptr.To(int64(0))
	if pod.Status.Phase == corev1.PodRunning {
		w.end(pod.Name, state.ExitTerminated)
	}
}

// admitted returns the names of the pods that run, or may run.
func (w *world) admitted() []string {
	var found []string
	for _, name := range w.podNames() {
		if pod := w.pods[name]; len(pod.Spec.SchedulingGates) == 0 && podstate.Active(pod) {
			found = append(found, name)
		}
	}
	return found
}

// newQueuedWorld returns a world with Kueue and a queued job of four replicas.
func newQueuedWorld(t expect.Test) *world {
	w := newWorld(t, trainingJob())
	w.kueue = newKueue()
	w.job.Labels = map[string]string{queueing.LabelQueue: "team"}
	return w
}
