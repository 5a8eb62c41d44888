// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/gangs"
	"opendilab.org/di-orchestrator/internal/lifecycle/handshake"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/scaling"
	"opendilab.org/di-orchestrator/internal/workload"
)

// A worker-led job is decided about in stages. Each stage is a type that takes what the stages before it found:
//
//	Plan      counts: what is desired, and which pods are stale
//	ranked    ranks: which replica has which rank, and which ranks have succeeded
//	failing   failures: how the attempt ends, and which pods were disrupted
//	staffing  pods: which are deleted, resized and created
//	outcome   status: the phase, the counts and the conditions

// ranked are the desired replicas with their ranks. Only Plan.assign makes it, after the counts are recorded and
// the pods of earlier attempts are gone.
type ranked struct {
	out   *state.Plan
	in    *state.Input
	facts *facts
	// assignment is the rank of each desired replica. It is empty if no ranks are assigned.
	assignment workload.Assignment
	// growth are the replicas that were added to a queued job.
	growth growth
	// completed are the ranks that have succeeded.
	completed ranks.Set
}

// assign gives each desired replica a rank, and records the ranks, which of them have completed, and in which
// groups added replicas queue.
func (p *Plan) assign() *ranked {
	r := &ranked{out: p.out, in: p.in, facts: p.facts}
	r.assignment = ranks.Assign(r.in.Job, r.facts.indexes, r.out.Status(), r.in.PodNamed, r.facts.peersOf)
	r.assignment.ReplicaRestarts = r.out.Status().ReplicaRestarts
	r.recordRanks(p.execution)
	r.assignment.Subdomain, r.assignment.Selector = r.subdomain(), r.selector()
	r.completed = r.recordCompleted()
	r.growth = r.recordGrowth()
	return r
}

// recordCompleted records which of the desired ranks have succeeded: those recorded already, and
// those whose pods have succeeded now. It returns them.
func (r *ranked) recordCompleted() ranks.Set {
	completed := map[int32]bool{}
	r.out.Unrecorded = map[string]bool{}
	for i := range r.assignment.Replicas {
		replica := &r.assignment.Replicas[i]
		pod := r.in.PodNamed[replica.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := r.isCompleted(replica)
		if shown || recorded {
			completed[replica.Rank] = true
		}
		if shown && !recorded {
			r.out.Unrecorded[replica.Pod] = true
		}
	}
	attempts := r.out.Attempts()
	attempts.CompletedRanks = ranks.Format(completed)
	r.out.RecordAttempts(attempts)
	return ranks.Read(attempts.CompletedRanks)
}

// failing decides what the ends of replicas mean for the attempt.
type failing struct {
	out       *state.Plan
	in        *state.Input
	facts     *facts
	ranked    *ranked
	sizes     *rightsize.Rules
	handshake *handshake.Handshake
	// stall is why a replica cannot start, nil if all can or none has failed.
	stall *state.Stall
}

func (p *Plan) failing(r *ranked) *failing {
	f := &failing{out: p.out, in: p.in, facts: p.facts, ranked: r, sizes: p.sizes, handshake: p.handshake}
	if slices.ContainsFunc(p.in.Pods, podstate.FailedOrLost) {
		f.stall = p.out.FindStall()
	}
	return f
}

// rules are the rules of failures, in order.
func (f *failing) rules() []state.Rule {
	return []state.Rule{
		{Name: "all deciding ranks have succeeded", Apply: f.succeed},
		{Name: "out-of-memory replicas get more memory", Apply: f.growMemory},
		{Name: "failures are counted", Apply: f.countFailures},
		{Name: "a suspended job has no pods", Apply: f.suspendWorkers},
	}
}

// disruptions are the pods that ended without a failure of their own.
type disruptions struct {
	// victims are the pods that failed because another replica cannot start.
	victims map[*corev1.Pod]bool
	// isBackingOff is set while disrupted pods wait to be recreated.
	isBackingOff bool
}

// staffing decides about the pods of replicas.
type staffing struct {
	out         *state.Plan
	in          *state.Input
	facts       *facts
	ranked      *ranked
	disruptions disruptions
	sizes       *rightsize.Rules
	execution   scaling.Execution
	handshake   *handshake.Handshake
}

func (p *Plan) staffing(r *ranked, found disruptions) *staffing {
	return &staffing{
		out: p.out, in: p.in, facts: p.facts, ranked: r, disruptions: found, sizes: p.sizes, execution: p.execution, handshake: p.handshake,
	}
}

// rules are the rules of pods, in order.
func (s *staffing) rules() []state.Rule {
	return []state.Rule{
		{Name: "excess, failed and disrupted pods are deleted", Apply: s.removeExcess},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: s.migrate},
		{Name: "unschedulable replicas request less", Apply: s.shrinkPending},
		{Name: "pods get their recorded resources", Apply: s.applyResources},
		{Name: "the membership is published", Apply: s.publishMembership},
		{Name: "peer lists stay while pods need them", Apply: s.keepNodes},
	}
}

// staff creates the PodGroup, and then the pods of replicas without one. It returns what is decided about the gang.
func (s *staffing) staff() gangs.Plan {
	gang, result := gangs.New(s.out, s.in, s.facts.counts.Total).Decide(s.ranked.assignment.Replicas, &s.ranked.completed)
	if result == state.Continue {
		s.ensureWorkers(&gang)
	}
	return gang
}

// outcome is the last stage. It implements state.Outcome.
type outcome struct {
	out   *state.Plan
	in    *state.Input
	facts *facts
	// ranked has no ranks if a rule settled the decision before they were assigned.
	ranked    ranked
	sizes     *rightsize.Rules
	execution scaling.Execution
	handshake *handshake.Handshake
	// gang is what is decided about the gang.
	gang gangs.Plan
	// isBackingOff is set while disrupted pods wait to be recreated.
	isBackingOff bool
}

// outcome returns the last stage. A rule may have given up the completed ranks since they were recorded.
func (p *Plan) outcome(r ranked, gang gangs.Plan, found disruptions) *outcome {
	r.out, r.in, r.facts, r.completed = p.out, p.in, p.facts, ranks.Read(p.out.Status().CompletedRanks)
	return &outcome{
		out: p.out, in: p.in, facts: p.facts, ranked: r, sizes: p.sizes, execution: p.execution, handshake: p.handshake,
		gang: gang, isBackingOff: found.isBackingOff,
	}
}

// Report implements state.Outcome. It records the end of a ScalePlan, and sets the conditions for the placement,
// the queue and the gang.
func (o *outcome) Report() {
	o.execution.Finish(o.progressOfPlan)
	o.reportPlace()
	o.out.ReportQueue()
	if !o.facts.isExcessive() {
		gangs.New(o.out, o.in, o.facts.counts.Total).Report(o.gang, &o.ranked.completed)
	}
}
