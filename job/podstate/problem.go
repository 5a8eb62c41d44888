// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// SetupGracePeriod is how long a pod may wait for a scheduler's first attempt or for its node's
	// volumes and network. The kubelet waits as long for volumes before it reports an error.
	SetupGracePeriod = 2 * time.Minute
	// TerminatingGracePeriod is how long a pod may still exist after its own grace
	// period for deletion.
	TerminatingGracePeriod = time.Minute
	// StableAfter is how long a container runs before its earlier crashes no longer count. The
	// kubelet resets its backoff after the same time.
	StableAfter = 10 * time.Minute
	// namedFinalizers is how many finalizers of a pod a message names.
	namedFinalizers = 3
	// toleratedRestarts is how often a container may have restarted before the next crash makes a
	// crash loop. Any program may crash once.
	toleratedRestarts = 1
)

// Problem is something in a pod's status that keeps the pod from running or from
// terminating.
type Problem struct {
	// Reason is a reason of the condition ReplicasStalled, or of ReplicasNotReady for a wait.
	Reason string
	// Message describes the problem. It stays the same while the kubelet retries.
	Message string
	// LastMessage is what a container or the kubelet reported last. It may differ at
	// each retry.
	LastMessage string
	// from and until bound when the problem is active; zero times do not.
	from, until time.Time
}

// ProblemsDiffer reports whether two states of a pod differ in the problems that decisions depend
// on. A problem that clears within its grace period is not a change, because most pods wait briefly
// for the scheduler and the node.
func ProblemsDiffer(before, after *corev1.Pod, now time.Time) bool {
	was, is := Problems(before), Problems(after)
	began := slices.ContainsFunc(is, func(p Problem) bool { return !slices.Contains(was, p) })
	if wait, waits := Wait(before); waits {
		was = append(was, wait)
	}
	if wait, waits := Wait(after); waits {
		is = append(is, wait)
	}
	return began || slices.ContainsFunc(was, func(p Problem) bool {
		active, _ := p.Active(now)
		return active && !slices.Contains(is, p)
	})
}

// Problems returns the problems of a pod, the most serious first. It needs no
// clock: a problem with a grace period records when it becomes active.
func Problems(pod *corev1.Pod) []Problem {
	switch {
	case Terminating(pod):
		return []Problem{terminationProblem(pod)}
	case Finished(pod):
		return nil
	}
	all := slices.Concat(containerProblems(pod), mainEndedProblems(pod), setupProblems(pod), schedulingProblems(pod))
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Severity(), b.Severity()) })
	return all
}

// ActiveProblem returns the most serious active problem of a pod. It also returns after how long
// the set of active problems changes without an event, 0 for never.
func ActiveProblem(pod *corev1.Pod, now time.Time) (worst Problem, found bool, changes time.Duration) {
	for _, problem := range Problems(pod) {
		active, after := problem.Active(now)
		if after > 0 && (changes == 0 || after < changes) {
			changes = after
		}
		if active && !found {
			worst, found = problem, true
		}
	}
	return worst, found, changes
}

// Severity orders problems, the most serious first. A problem of a later stage is less likely to
// pass by itself.
func (p *Problem) Severity() int {
	return slices.Index([]string{
		v2alpha1.ReasonTerminating,
		v2alpha1.ReasonCrashLoop, v2alpha1.ReasonContainerStart, v2alpha1.ReasonContainerConfig,
		v2alpha1.ReasonImagePull, v2alpha1.ReasonMainContainerExited, v2alpha1.ReasonPodSetup, v2alpha1.ReasonUnschedulable,
		v2alpha1.ReasonNotReady, v2alpha1.ReasonSchedulingGated,
	}, p.Reason)
}

// Active reports whether the problem is past its grace period and not outdated. It also returns
// after how long that changes by itself, 0 for never.
func (p *Problem) Active(now time.Time) (active bool, changes time.Duration) {
	switch {
	case now.Before(p.from):
		return false, p.from.Sub(now)
	case p.until.IsZero():
		return true, 0
	case now.Before(p.until):
		return true, p.until.Sub(now)
	}
	return false, 0
}

// terminationProblem returns the problem of a pod that still exists after its grace period, which
// its deletionTimestamp includes. Its node does not respond, or a finalizer blocks the deletion.
func terminationProblem(pod *corev1.Pod) Problem {
	text := "is terminating and still exists"
	if pod.Spec.NodeName != "" {
		text += " on node " + pod.Spec.NodeName
	}
	if len(pod.Finalizers) > 0 {
		text += ", blocked by finalizer " + quotable(strings.Join(pod.Finalizers[:min(len(pod.Finalizers), namedFinalizers)], ", "))
	}
	return Problem{Reason: v2alpha1.ReasonTerminating, Message: text, from: pod.DeletionTimestamp.Add(TerminatingGracePeriod)}
}

// mainEndedProblems returns the problem of a pod whose main container has terminated for good while
// another container of the template still runs. The replica finishes with the last of them.
func mainEndedProblems(pod *corev1.Pod) []Problem {
	main := MainTermination(pod)
	if main == nil || pod.Spec.RestartPolicy != corev1.RestartPolicyNever || names.RoleOf(pod) == names.ReplicaTypeCoordinator {
		return nil
	}
	for _, name := range names.OwnContainers(pod) {
		if terminationOf(pod, name) == nil {
			return []Problem{{
				Reason:  v2alpha1.ReasonMainContainerExited,
				Message: fmt.Sprintf("its main container has exited (exit code %d), but container %s of its template still runs", main.ExitCode, name),
				from:    main.FinishedAt.Add(SetupGracePeriod),
			}}
		}
	}
	return nil
}

// schedulingProblems returns the problem of a pod that fits no node or that no scheduler handles. A
// pod with a scheduling gate waits on purpose.
func schedulingProblems(pod *corev1.Pod) []Problem {
	scheduled := conditions.OfPod(pod, corev1.PodScheduled)
	switch {
	case scheduled == nil && pod.Spec.NodeName == "" && Phase(pod) == corev1.PodPending:
		message := fmt.Sprintf("scheduler %q ignores it", cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName))
		if template := unclaimed(pod); template != "" {
			message = fmt.Sprintf("no ResourceClaim was created from ResourceClaimTemplate %q: does the template exist?", template)
		}
		return []Problem{{Reason: v2alpha1.ReasonUnschedulable, Message: message, from: pod.CreationTimestamp.Add(SetupGracePeriod)}}
	case scheduled == nil || scheduled.Status != corev1.ConditionFalse || scheduled.Reason != corev1.PodReasonUnschedulable:
		return nil
	}
	return []Problem{{Reason: v2alpha1.ReasonUnschedulable, Message: "cannot be scheduled: " + SchedulerMessage(scheduled.Message)}}
}

// unclaimed returns the first ResourceClaimTemplate of a pod from which no claim was created; "" for none.
// Schedulers do not even consider such a pod.
func unclaimed(pod *corev1.Pod) string {
	for i := range pod.Spec.ResourceClaims {
		claim := &pod.Spec.ResourceClaims[i]
		isCreated := slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(status corev1.PodResourceClaimStatus) bool {
			return status.Name == claim.Name
		})
		if claim.ResourceClaimTemplateName != nil && !isCreated {
			return *claim.ResourceClaimTemplateName
		}
	}
	return ""
}

// setupProblems returns the problem of a pod whose node does not set up its volumes and network.
// The status does not name the volume; the pod's events do.
func setupProblems(pod *corev1.Pod) []Problem {
	scheduled, prepared := conditions.OfPod(pod, corev1.PodScheduled), conditions.OfPod(pod, corev1.PodReadyToStartContainers)
	if scheduled == nil || prepared == nil || scheduled.Status != corev1.ConditionTrue ||
		prepared.Status != corev1.ConditionFalse || Phase(pod) != corev1.PodPending {
		return nil
	}
	return []Problem{{
		Reason:  v2alpha1.ReasonPodSetup,
		Message: fmt.Sprintf("node %s has not set up its volumes and network; see the events of the pod", pod.Spec.NodeName),
		from:    scheduled.LastTransitionTime.Add(SetupGracePeriod),
	}}
}
