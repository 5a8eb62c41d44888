// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staffing decides which pods of a worker-led job are deleted, resized and created.
package staffing

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/gangs"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/failures"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/peers"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/policy"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// Stage decides about the pods of replicas.
type Stage struct {
	out         *state.Plan
	in          *state.Input
	facts       *observed.Facts
	ranked      *ranked.Replicas
	disruptions failures.Disruptions
	sizes       *rightsize.Rules
	execution   scaling.Execution
	handshake   *handshake.Handshake
	// peers are the ConfigMaps that tell pods their peers.
	peers *peers.Lists
}

// New returns the rules of the pods of replicas with ranks.
func New(out *state.Plan, job *observed.Facts, r *ranked.Replicas, shake *handshake.Handshake, found failures.Disruptions) *Stage {
	return &Stage{
		out: out, in: job.In, facts: job, ranked: r, disruptions: found,
		sizes: rightsize.New(out, job.In), execution: scaling.NewExecution(out, job.In), handshake: shake, peers: peers.New(out, job, r),
	}
}

// Rules are the rules of pods, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "excess, failed and disrupted pods are deleted", Apply: s.removeExcess},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: s.migrate},
		{Name: "unschedulable replicas request less", Apply: s.shrinkPending},
		{Name: "pods get their recorded resources", Apply: s.applyResources},
		{Name: "the membership is published", Apply: s.publishMembership},
		{Name: "peer lists stay while pods need them", Apply: s.peers.KeepNodes},
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
			if s.mayRelease(pod) {
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
			if !policy.IsKept(s.out, s.in.Now, pod, s.out.Status().ReplicaRestarts[pod.Name]) {
				s.out.DeletePod(pod)
			}
		case queueing.IsAbandoned(pod), s.isOfFormerGroup(replica, pod), s.mayReplaceWorker(replica, pod), s.peers.HasLostNodes(pod):
			s.out.DeletePod(pod)
		}
	}
	return state.Continue
}

// ensureWorkerService creates the service of a worker-led job, and deletes the services of an
// earlier release. While pods exist that need those services, they stay unchanged.
func (s *Stage) ensureWorkerService() {
	wanted := workload.WorkerService(s.in.Job)
	if s.ranked.Assignment.Subdomain != wanted.Name && len(s.in.Services) > 0 {
		return
	}
	for _, earlier := range names.EarlierWorkerServices(s.in.Job.Name) {
		if service := s.in.ServiceNamed[earlier]; service != nil {
			s.out.DeleteService(service)
		}
	}
	wanted.Name = s.ranked.Assignment.Subdomain
	s.out.EnsureService(wanted, wanted.Spec.Selector)
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
	left := podstate.FinishTime(pod).Add(ignoredDelay).Sub(s.in.Now)
	if left <= 0 {
		return true
	}
	s.out.RequeueAfter(left)
	return false
}

// mayRelease reports whether a pod may be deleted or replaced by intent now.
func (s *Stage) mayRelease(pod *corev1.Pod) bool {
	return s.handshake.MayRelease(pod)
}

// publishMembership records the next version of the membership.
func (s *Stage) publishMembership() state.Result {
	if !handshake.HasStateful(s.in.Job) {
		s.handshake.Publish(nil)
		return state.Continue
	}
	complete, joining := s.completeTasks(), make(map[string]bool, len(s.ranked.Assignment.Replicas))
	for i := range s.ranked.Assignment.Replicas {
		joining[s.ranked.Assignment.Replicas[i].Pod] = complete[s.ranked.Assignment.Replicas[i].Task]
	}
	s.handshake.Publish(joining)
	return state.Continue
}

// completeTasks returns the tasks whose replicas may join. Replicas that hold state join together,
// so that state moves once.
func (s *Stage) completeTasks() map[int]bool {
	complete := make(map[int]bool, len(s.in.Job.Spec.Tasks))
	for task := range s.in.Job.Spec.Tasks {
		complete[task] = true
	}
	for i := range s.ranked.Assignment.Replicas {
		replica := &s.ranked.Assignment.Replicas[i]
		pod := s.in.PodNamed[replica.Pod]
		isReady := s.ranked.Completed.Has(replica.Rank) || pod != nil && (podstate.Ready(pod) || s.handshake.IsListed(pod))
		if s.in.Job.Spec.Tasks[replica.Task].Drain != nil && !isReady {
			complete[replica.Task] = false
		}
	}
	return complete
}

// isAnyMoved reports whether a replica without a pod has another rank than recorded. The new rank
// is recorded before its pod is created. Otherwise a reconcile that creates only some of the pods
// would leave pods and record in disagreement.
func (s *Stage) isAnyMoved() bool {
	before := s.in.Job.Status.Scaling
	if before == nil || len(before.Ranks) == 0 {
		return false
	}
	recorded := make([]ranks.Recorded, len(s.in.Job.Spec.Tasks))
	for i := range recorded {
		task := names.TaskName(&s.in.Job.Spec.Tasks[i])
		recorded[i] = ranks.ReadRecorded(before, task, before.Ranks[task])
	}
	return slices.ContainsFunc(s.ranked.Assignment.Replicas, func(replica workload.Replica) bool {
		rank := recorded[replica.Task].Rank(replica.Index)
		return s.in.PodNamed[replica.Pod] == nil && rank != podstate.Unranked && rank != replica.Rank
	})
}

// hasForeignRank reports whether a pod was created with a rank that another replica has now. That
// happens if a second resize comes before the cache has the pods of the first.
func hasForeignRank(replica *workload.Replica, pod *corev1.Pod) bool {
	rank := podstate.Rank(pod)
	return rank != podstate.Unranked && rank != replica.Rank
}

// sizedReplicas returns the replicas that have pods and have not completed.
func (s *Stage) sizedReplicas() iter.Seq[rightsize.Replica] {
	return func(yield func(rightsize.Replica) bool) {
		for i := range s.ranked.Assignment.Replicas {
			replica := s.facts.Sized(&s.ranked.Assignment.Replicas[i])
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
func (r replacement) MayRelease(pod *corev1.Pod) bool { return r.of.mayRelease(pod) }

// AreOthersReady implements rightsize.Replacement. Replicas that have succeeded are ready.
func (r replacement) AreOthersReady(replica *rightsize.Replica) bool {
	return !slices.ContainsFunc(r.of.ranked.Assignment.Replicas, func(other workload.Replica) bool {
		pod := r.of.in.PodNamed[other.Pod]
		return names.TaskName(&r.of.in.Job.Spec.Tasks[other.Task]) == replica.Task && other.Pod != replica.Pod.Name && !r.of.ranked.Completed.Has(other.Rank) &&
			(pod == nil || r.of.out.Deleting[pod] || !podstate.Ready(pod))
	})
}

// migrate deletes the pods that a plan replaces. Their replicas keep their names and ranks.
func (s *Stage) migrate() state.Result {
	for _, pod := range s.execution.Migrating() {
		if s.mayRelease(pod) {
			s.out.DeletePod(pod)
		}
	}
	return state.Continue
}

// ignoredDelay is the delay before a pod whose failure is ignored is recreated. Nothing else bounds how often that
// happens.
const ignoredDelay = 5 * time.Second

// Staff creates the PodGroup, and then the pods of replicas without one. It returns what is decided about the gang.
func (s *Stage) Staff() gangs.Plan {
	gang, result := gangs.New(s.out, s.in, s.facts.Counts.Total).Decide(s.ranked.Assignment.Replicas, &s.ranked.Completed)
	if result == state.Continue {
		s.ensureWorkers(&gang)
	}
	return gang
}

// ensureWorkers creates the pods of replicas without one, as members of a gang if there is one.
func (s *Stage) ensureWorkers(gang *gangs.Plan) {
	if state.IsUnplaced(s.in.Job) || !s.mayQueue() {
		return
	}
	s.ensureWorkerService()
	if s.isAnyMoved() || s.isGrowthUnrecorded() {
		// The write of the record triggers the next reconcile.
		return
	}
	if missing := s.missing(); len(missing) > 0 {
		s.createWorkers(missing, gang)
	}
}

// missing returns the replicas whose pods may be created now.
func (s *Stage) missing() []*workload.Replica {
	var missing []*workload.Replica
	for i := range s.ranked.Assignment.Replicas {
		replica := &s.ranked.Assignment.Replicas[i]
		if s.in.PodNamed[replica.Pod] != nil || s.ranked.Completed.Has(replica.Rank) || s.out.IsPodTaken(replica.Pod) {
			continue
		}
		if s.out.MayCreate(names.TaskName(&s.in.Job.Spec.Tasks[replica.Task])) {
			missing = append(missing, replica)
		}
	}
	return missing
}

// createWorkers creates the pods of replicas in the job's gang and queue, or records why one cannot be built.
func (s *Stage) createWorkers(replicas []*workload.Replica, gang *gangs.Plan) {
	start := s.findPodMeta()
	for _, replica := range replicas {
		pod, err := s.in.Builder.Worker(&s.ranked.Assignment, replica)
		if err != nil {
			s.out.Invalidate(err.Error())
			continue
		}
		gang.Mark(pod)
		s.podMeta(replica, start).Apply(pod)
		s.out.CreatePod(pod)
	}
	if len(s.out.Decision.CreatePods) > 0 && !s.peers.ProvideNodes() {
		s.out.Decision.CreatePods = nil
	}
}

// IsForced implements rightsize.Replacement. A pod that runs has enough memory.
func (replacement) IsForced(*rightsize.Replica) bool { return false }
