// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// setupPatience is how long a pod may wait for a scheduler's first look or
	// for its node's volumes and network: as long as the kubelet waits for
	// volumes before it complains.
	setupPatience = 2 * time.Minute
	// goingPatience is how long a pod may take to go once its grace period is over.
	goingPatience = time.Minute
	// stableAfter is how long a container runs before its earlier crashes are
	// past: the time after which the kubelet forgets them too.
	stableAfter = 10 * time.Minute
	// pastCrashes is how often a container was restarted before the next crash
	// makes a loop: anything may crash once.
	pastCrashes = 1
)

// stall is something in a pod's status that tells that the pod does not get on.
type stall struct {
	reason string
	// text says what is wrong. It stays the same while the kubelet tries again.
	text string
	// lastWords are what a container or the kubelet said about it, in words
	// that may differ at each try.
	lastWords string
	// from and until bound when the stall holds; zero times do not.
	from, until time.Time
}

// StallsDiffer tells whether two states of a pod differ in what keeps it from
// getting on, as far as a decision rests on it. A stall that goes before it is
// told makes no difference: most pods wait a while for their scheduler and their
// node.
func StallsDiffer(before, after *corev1.Pod, now time.Time) bool {
	was, is := stallsOf(before), stallsOf(after)
	began := slices.ContainsFunc(is, func(s stall) bool { return !slices.Contains(was, s) })
	return began || slices.ContainsFunc(was, func(s stall) bool {
		held, _ := s.holds(now)
		return held && !slices.Contains(is, s)
	})
}

// stallsOf returns what keeps a pod from getting on, the most serious first. It
// needs no clock: a stall that takes time says from when or until when it holds.
func stallsOf(pod *corev1.Pod) []stall {
	switch {
	case isTerminating(pod):
		return []stall{terminationStall(pod)}
	case isEnded(pod):
		return nil
	}
	all := slices.Concat(containerStalls(pod), outlivingStalls(pod), setupStalls(pod), schedulingStalls(pod))
	slices.SortStableFunc(all, func(a, b stall) int { return cmp.Compare(a.rank(), b.rank()) })
	return all
}

// rank orders stalls by how serious they are: what has come furthest waits the
// least for something that passes by itself.
func (s *stall) rank() int {
	return slices.Index([]string{
		v2alpha1.ReasonTerminating,
		v2alpha1.ReasonCrashLoop, v2alpha1.ReasonContainerStart, v2alpha1.ReasonContainerConfig,
		v2alpha1.ReasonImagePull, v2alpha1.ReasonMainEnded, v2alpha1.ReasonPodSetup, v2alpha1.ReasonUnschedulable,
	}, s.reason)
}

// holds tells whether the stall holds, and in how long that changes by itself,
// 0 for never.
func (s *stall) holds(now time.Time) (held bool, changes time.Duration) {
	switch {
	case now.Before(s.from):
		return false, s.from.Sub(now)
	case s.until.IsZero():
		return true, 0
	case now.Before(s.until):
		return true, s.until.Sub(now)
	}
	return false, 0
}

// terminationStall: the pod does not go, though its grace period, which its
// deletionTimestamp includes, is over. Its node does not answer, or somebody's
// finalizer holds it.
func terminationStall(pod *corev1.Pod) stall {
	text := "is being deleted and does not go"
	if pod.Spec.NodeName != "" {
		text += " from node " + pod.Spec.NodeName
	}
	if len(pod.Finalizers) > 0 {
		text += ", held by finalizer " + plain(pod.Finalizers[0])
	}
	return stall{reason: v2alpha1.ReasonTerminating, text: text, from: pod.DeletionTimestamp.Add(goingPatience)}
}

// outlivingStalls: the main container has ended for good, and another one that the
// template has beside it goes on. The replica has not ended before all of them have.
func outlivingStalls(pod *corev1.Pod) []stall {
	main := mainTermination(pod)
	if main == nil || pod.Spec.RestartPolicy != corev1.RestartPolicyNever || membership.RoleOf(pod) == names.ReplicaTypeCoordinator {
		return nil
	}
	for _, name := range names.OwnContainers(pod) {
		if terminationOf(pod, name) == nil {
			return []stall{{
				reason: v2alpha1.ReasonMainEnded,
				text:   fmt.Sprintf("its main container has ended (exit code %d), and container %s of its template goes on", main.ExitCode, name),
				from:   main.FinishedAt.Add(setupPatience),
			}}
		}
	}
	return nil
}

// schedulingStalls: no node is found for the pod, or nobody looks for one. A
// pod behind a scheduling gate waits for its turn on purpose.
func schedulingStalls(pod *corev1.Pod) []stall {
	scheduled := podCondition(pod, corev1.PodScheduled)
	switch {
	case scheduled == nil && pod.Spec.NodeName == "" && phaseOf(pod) == corev1.PodPending:
		return []stall{{
			reason: v2alpha1.ReasonUnschedulable,
			text:   fmt.Sprintf("scheduler %q does not look at it", cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)),
			from:   pod.CreationTimestamp.Add(setupPatience),
		}}
	case scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable:
		return nil
	}
	return []stall{{reason: v2alpha1.ReasonUnschedulable, text: "cannot be scheduled: " + schedulerWords(scheduled.Message)}}
}

// setupStalls: the node does not get volumes and network ready. That is all
// that a pod's status tells of volumes; which one it is stands in the pod's events.
func setupStalls(pod *corev1.Pod) []stall {
	scheduled, prepared := podCondition(pod, corev1.PodScheduled), podCondition(pod, corev1.PodReadyToStartContainers)
	if scheduled == nil || prepared == nil || scheduled.Status != corev1.ConditionTrue ||
		prepared.Status != corev1.ConditionFalse || phaseOf(pod) != corev1.PodPending {
		return nil
	}
	return []stall{{
		reason: v2alpha1.ReasonPodSetup,
		text:   fmt.Sprintf("node %s does not get its volumes and network ready; see the events of the pod", pod.Spec.NodeName),
		from:   scheduled.LastTransitionTime.Add(setupPatience),
	}}
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// schedulerWords returns why no node is available, without the numbers of
// nodes, which change as nodes and other pods come and go. What does not read
// as kube-scheduler's is left as it is.
func schedulerWords(message string) string {
	message, _, _ = strings.Cut(message, " preemption: ")
	message = strings.TrimSuffix(strings.TrimSpace(message), ".")
	_, causes, found := strings.Cut(message, " nodes are available: ")
	if !found {
		return plain(message)
	}
	// A cause may itself hold a comma.
	var kept []string
	for part := range strings.SplitSeq(causes, ", ") {
		number, cause, counted := strings.Cut(part, " ")
		switch {
		case counted && strings.Trim(number, "0123456789") == "":
			kept = append(kept, cause)
		case len(kept) > 0:
			kept[len(kept)-1] += ", " + part
		default:
			kept = append(kept, part)
		}
	}
	slices.Sort(kept)
	return plain("no node is available: " + strings.Join(slices.Compact(kept), ", "))
}
