// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package excess decides which pods of a worker-led job are deleted or resized: those without a replica, those that ended and
// are recreated, those that a ScalePlan migrates and those that need other resources.
package excess

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/failures"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/groups"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/identity"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/peers"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// ignoredDelay is the delay before a pod whose failure is ignored is recreated. Nothing else bounds how often that
// happens.
const ignoredDelay = 5 * time.Second

// Stage decides which pods are deleted and resized.
type Stage struct {
	out         *state.Plan
	in          *state.Input
	facts       *observed.Facts
	ranked      *ranked.Replicas
	disruptions failures.Disruptions
	sizes       *rightsize.Rules
	removals    handshake.Removals
	// peers are the ConfigMaps that tell pods their peers.
	peers *peers.Lists
}

// New returns the rules of pods that are deleted and resized.
func New(out *state.Plan, job *observed.Facts, r *ranked.Replicas, shake *handshake.Handshake, found failures.Disruptions) *Stage {
	return &Stage{
		out: out, in: job.In, facts: job, ranked: r, disruptions: found,
		sizes: rightsize.New(out, job.In), removals: handshake.NewRemovals(shake), peers: peers.New(out, job, r),
	}
}

// Removals returns the pods that these rules want to release.
func (s *Stage) Removals() handshake.Removals { return s.removals }

// Rules are the rules of pods that are deleted and resized, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "excess, failed and disrupted pods are deleted", Apply: s.removeExcess},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: s.migrate},
		{Name: "unschedulable replicas request less", Apply: s.shrinkPending},
		{Name: "pods get their recorded resources", Apply: s.applyResources},
	}
}

// removeExcess deletes pods without a replica after a shrink, and pods whose rank another replica
// has or has completed. It also deletes succeeded pods in which an injected container runs, and
// failed pods that are recreated under the same name.
func (s *Stage) removeExcess() state.Result {
	replicas := make(map[string]*workload.Replica, len(s.ranked.Assignment.Replicas))
	for i := range s.ranked.Assignment.Replicas {
		replicas[s.ranked.Assignment.Replicas[i].Pod] = &s.ranked.Assignment.Replicas[i]
	}
	for _, pod := range s.in.Pods {
		replica := replicas[pod.Name]
		switch {
		case replica == nil:
			if s.removals.MayRelease(pod) {
				s.out.DeletePod(pod)
			}
		case pod.Status.Phase == corev1.PodSucceeded:
			// This includes one that was given up before its success was observed.
			if podstate.InjectedRuns(pod) && s.in.CleanPodPolicy() != v2alpha1.CleanPodPolicyNone {
				s.out.DeletePod(pod)
			}
		case hasForeignRank(replica, pod), s.ranked.IsCompleted(replica):
			s.out.DeletePod(pod)
		case s.facts.IsCounted(pod):
			if !policy.IsKept(s.out, s.in, pod, s.out.Status().ReplicaRestarts[pod.Name]) {
				s.out.DeletePod(pod)
			}
		case queueing.IsAbandoned(pod), s.isOfFormerGroup(replica, pod), s.mayReplaceWorker(replica, pod), s.peers.HasLostNodes(pod):
			s.out.DeletePod(pod)
		}
	}
	return state.Continue
}

// mayReplaceWorker reports whether a failed pod may be recreated now. A pod whose
// failure is ignored waits for ignoredDelay, a disrupted one for the backoff.
func (s *Stage) mayReplaceWorker(replica *workload.Replica, pod *corev1.Pod) bool {
	if !podstate.FailedOrLost(pod) {
		return false
	}
	if !state.HasFailed(s.in.Job, pod) || s.disruptions.Victims[pod] {
		return !s.disruptions.IsBackingOff
	}
	if action, _ := policy.ActionFor(s.in.Job, replica, pod); action != v2alpha1.FailurePolicyIgnore {
		return true
	}
	left := s.in.DelayLeft(pod, podstate.FinishTime(pod), ignoredDelay)
	if left <= 0 {
		return true
	}
	s.out.RequeueAfter(left)
	return false
}

// hasForeignRank reports whether a pod was created with a rank that another replica has now. That
// happens if a second resize comes before the cache has the pods of the first.
func hasForeignRank(replica *workload.Replica, pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	return rank != podstate.Unranked && rank != replica.Rank
}

// isOfFormerGroup reports whether the pod of an added replica is in another group than the replica. Kueue
// would admit the replica's group only with a pod for each of its replicas, and keeps the quota of the other.
func (s *Stage) isOfFormerGroup(replica *workload.Replica, pod *corev1.Pod) bool {
	_, number, grouped := groups.Of(s.in.Job, pod)
	return grouped && s.ranked.Growth.Has(replica.Rank) && number != s.ranked.Growth.Number(replica.Rank)
}

// migrate deletes the pods that a plan replaces. Their replicas keep their names and ranks.
func (s *Stage) migrate() state.Result {
	scaling.NewExecution(s.out, s.in).Migrate(s.removals.MayRelease)
	return state.Continue
}

// sizedReplicas returns the replicas that have pods and have not completed.
func (s *Stage) sizedReplicas() iter.Seq[rightsize.Replica] {
	return func(yield func(rightsize.Replica) bool) {
		for i := range s.ranked.Assignment.Replicas {
			replica := identity.Sized(s.in, &s.ranked.Assignment.Replicas[i])
			if replica.Pod != nil && !s.ranked.Completed.Has(s.ranked.Assignment.Replicas[i].Rank) && !yield(replica) {
				return
			}
		}
	}
}

// shrinkPending records fewer resources for replicas that the scheduler has found no node for.
func (s *Stage) shrinkPending() state.Result {
	s.sizes.ShrinkPending(s.sizedReplicas())
	return state.Continue
}

// applyResources gives the pods their recorded resources.
func (s *Stage) applyResources() state.Result {
	if !state.IsFinished(s.out.Status()) && !state.IsSuspended(s.in.Job) && !state.IsUnplaced(s.in.Job) {
		s.sizes.Apply(s.sizedReplicas(), replacement{s})
	}
	return state.Continue
}

// replacement decides which replicas may be replaced for other resources.
type replacement struct{ of *Stage }

// MayRelease implements rightsize.Replacement. A pod of a task with drain hands over its state first.
func (r replacement) MayRelease(pod *corev1.Pod) bool { return r.of.removals.MayRelease(pod) }

// AreOthersReady implements rightsize.Replacement. Replicas that have succeeded are ready.
func (r replacement) AreOthersReady(replica *rightsize.Replica) bool {
	return !slices.ContainsFunc(r.of.ranked.Assignment.Replicas, func(other workload.Replica) bool {
		pod := r.of.in.PodNamed[other.Pod]
		return names.TaskName(&r.of.in.Job.Spec.Tasks[other.Task]) == replica.Task && other.Pod != replica.Pod.Name && !r.of.ranked.Completed.Has(other.Rank) &&
			(pod == nil || r.of.out.Deleting[pod] || !podstate.Ready(pod))
	})
}

// IsForced implements rightsize.Replacement. A pod that runs has enough memory.
func (replacement) IsForced(*rightsize.Replica) bool { return false }
