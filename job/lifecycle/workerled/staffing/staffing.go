// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staffing decides which pods of a worker-led job are created, and publishes which are members.
package staffing

import (
	"slices"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/gangs"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/peers"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Stage decides about the pods of replicas that have none.
type Stage struct {
	out       *state.Plan
	in        *state.Input
	facts     *observed.Facts
	ranked    *ranked.Replicas
	handshake *handshake.Handshake
	// removals are the pods that the rules before want to release.
	removals handshake.Removals
	// peers are the ConfigMaps that tell pods their peers.
	peers *peers.Lists
}

// New returns the rules of the pods of replicas with ranks.
func New(out *state.Plan, job *observed.Facts, r *ranked.Replicas, shake *handshake.Handshake, removals handshake.Removals) *Stage {
	return &Stage{out: out, in: job.In, facts: job, ranked: r, handshake: shake, removals: removals, peers: peers.New(out, job, r)}
}

// Rules are the rules of what pods need before they are created, in order.
func (s *Stage) Rules() []state.Rule {
	return []state.Rule{
		{Name: "the membership is published", Apply: s.publishMembership},
		{Name: "peer lists stay while pods need them", Apply: s.peers.KeepNodes},
	}
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

// publishMembership records the next version of the membership.
func (s *Stage) publishMembership() state.Result {
	if !handshake.HasStateful(s.in.Job) {
		s.handshake.Publish(s.removals, nil)
		return state.Continue
	}
	complete, joining := s.completeTasks(), make(map[string]bool, len(s.ranked.Assignment.Replicas))
	for i := range s.ranked.Assignment.Replicas {
		joining[s.ranked.Assignment.Replicas[i].Pod] = complete[s.ranked.Assignment.Replicas[i].Task]
	}
	s.handshake.Publish(s.removals, joining)
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
	if len(s.out.Decision.CreatePods) > 0 && (!s.peers.ProvideNodes() || !s.provideKeys()) {
		s.out.Decision.CreatePods = nil
	}
}

// provideKeys makes sure that pods that are created now have the keys of ssh of their attempt. It reports whether they
// need none, or the Secret is created before them. Whether it exists is not observed: the operator reads no Secrets.
// The keys of the attempt before, whose pods are gone, are deleted.
func (s *Stage) provideKeys() bool {
	if !names.HasMPI(&s.in.Job.Spec) {
		return true
	}
	if !s.out.MayCreate(state.KindSecrets) {
		return false
	}
	s.out.Decision.CreateSecrets = append(s.out.Decision.CreateSecrets, s.in.Builder.SSHSecret(&s.ranked.Assignment))
	if generation := s.ranked.Assignment.Generation(); generation > 0 {
		s.out.DeleteKeys(generation - 1)
	}
	return true
}
