// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/gangs"
	"opendilab.org/di-orchestrator/internal/lifecycle/handshake"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/queueing"
	"opendilab.org/di-orchestrator/internal/scaling"
	"opendilab.org/di-orchestrator/internal/workload"
)

// assigned is the plan of a worker-led job whose desired replicas have ranks. Only Plan.assign makes it, after
// the counts are recorded and the pods of earlier attempts are gone.
type assigned struct {
	out       *state.Plan
	in        *state.Input
	facts     *facts
	sizes     *rightsize.Rules
	execution scaling.Execution
	handshake *handshake.Handshake
	// assignment is the rank of each desired replica. It is empty if no ranks are assigned.
	assignment workload.Assignment
	// growth are the replicas that were added to a queued job.
	growth growth
	// planned are the completed ranks of the planned status, as last read by completed.
	planned     ranks.Set
	plannedText string
	// meta is the metadata for Kueue of pods of the job's start that are created now, once it is known.
	meta *queueing.PodMeta
	// gang is the gang of the job. ensureGang sets it.
	gang gangs.Plan
	// stall is why a replica cannot start, once it was looked for.
	stall **state.Stall
}

// unassigned returns the plan of a job whose replicas have no ranks.
func (p *Plan) unassigned() *assigned {
	return &assigned{out: p.out, in: p.in, facts: p.facts, sizes: p.sizes, execution: p.execution, handshake: p.handshake}
}

// assign gives each desired replica a rank, and records the ranks, which of them have completed, and in which
// groups added replicas queue.
func (p *Plan) assign() *assigned {
	a := p.unassigned()
	a.assignment = ranks.Assign(a.in.Job, a.facts.indexes, a.out.Status(), a.in.PodNamed, a.facts.peersOf)
	a.assignment.ReplicaRestarts = a.out.Status().ReplicaRestarts
	a.recordRanks()
	a.assignment.Subdomain, a.assignment.Selector = a.subdomain(), a.selector()
	a.recordCompleted()
	a.growth = a.recordGrowth()
	return a
}

// rules are the rules of replicas with ranks, in order.
func (a *assigned) rules() []state.Rule {
	return []state.Rule{
		{Name: "all deciding ranks have succeeded", Apply: a.succeed},
		{Name: "out-of-memory replicas get more memory", Apply: a.growMemory},
		{Name: "failures are counted", Apply: a.countFailures},
		{Name: "a suspended job has no pods", Apply: a.suspendWorkers},
		{Name: "repeated disruptions back off", Apply: a.backOffDisrupted},
		{Name: "excess, failed and disrupted pods are deleted", Apply: a.removeExcess},
		{Name: "pods that a ScalePlan migrates are deleted", Apply: a.migrate},
		{Name: "unschedulable replicas request less", Apply: a.shrinkPending},
		{Name: "pods get their recorded resources", Apply: a.applyResources},
		{Name: "the membership is published", Apply: a.publishMembership},
		{Name: "peer lists stay while pods need them", Apply: a.keepNodes},
		{Name: "the PodGroup is created before its pods", Apply: a.ensureGang},
		{Name: "every replica gets a pod", Apply: a.ensureWorkers},
	}
}

// Report implements state.Outcome. It records the end of a ScalePlan, and sets the conditions for the placement,
// the queue and the gang.
func (a *assigned) Report() {
	a.execution.Finish(a.progressOfPlan)
	a.reportPlace()
	a.out.ReportQueue()
	if !a.facts.isExcessive() {
		a.gangs().Report(a.gang, a.completed())
	}
}

// gangs are the rules of the job's gang.
func (a *assigned) gangs() gangs.Rules {
	return gangs.New(a.out, a.in, a.facts.counts.Total)
}

// ensureGang decides about the gang.
func (a *assigned) ensureGang() (result state.Result) {
	a.gang, result = a.gangs().Decide(a.assignment.Replicas, a.completed())
	return result
}

// recordCompleted records which of the desired ranks have succeeded: those recorded already, and
// those whose pods have succeeded now.
func (a *assigned) recordCompleted() {
	completed := map[int32]bool{}
	a.out.Unrecorded = map[string]bool{}
	for i := range a.assignment.Replicas {
		replica := &a.assignment.Replicas[i]
		pod := a.in.PodNamed[replica.Pod]
		shown := pod != nil && pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod)
		recorded := a.isCompleted(replica)
		if shown || recorded {
			completed[replica.Rank] = true
		}
		if shown && !recorded {
			a.out.Unrecorded[replica.Pod] = true
		}
	}
	attempts := a.out.Attempts()
	attempts.CompletedRanks = ranks.Format(completed)
	a.out.RecordAttempts(attempts)
}

// completed returns the completed ranks of the planned status.
func (a *assigned) completed() *ranks.Set {
	if text := a.out.Status().CompletedRanks; text != a.plannedText {
		a.planned, a.plannedText = ranks.Read(text), text
	}
	return &a.planned
}

// suspendWorkers suspends the job once its completed ranks are recorded.
func (a *assigned) suspendWorkers() state.Result {
	return suspend(a.out, a.in, a.out.Status().CompletedRanks == a.in.Job.Status.CompletedRanks)
}
