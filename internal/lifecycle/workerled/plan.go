// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workerled has the rules of worker-led jobs.
package workerled

import (
	"opendilab.org/di-orchestrator/internal/lifecycle/gangs"
	"opendilab.org/di-orchestrator/internal/lifecycle/handshake"
	"opendilab.org/di-orchestrator/internal/lifecycle/ranks"
	"opendilab.org/di-orchestrator/internal/lifecycle/rightsize"
	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/scaling"
	"opendilab.org/di-orchestrator/internal/workload"
)

// Plan is the plan of a worker-led job before its replicas have ranks. Its rules read in and facts, and write
// to out.
type Plan struct {
	out   *state.Plan
	in    *state.Input
	facts *facts
	// sizes are the rules of the replicas' resources.
	sizes *rightsize.Rules
	// execution is that of the job's ScalePlan.
	execution scaling.Execution
	// handshake is that of a job that has a task with drain.
	handshake *handshake.Handshake
}

// facts are what follows from the observation of a worker-led job alone. No rule changes them.
type facts struct {
	in *state.Input
	// recorded are the completed ranks of the recorded status.
	recorded ranks.Set
	// counts are the desired replicas of each task.
	counts sizing.Counts
	// indexes are the indexes of the replicas of each task.
	indexes [][]int32
	// resizes are the tasks whose desired count changed since it was last acted on.
	resizes []sizing.Resize
	// tooMany describes which counts exceed the maximum number of pods, or why no pods can be built
	// for them.
	tooMany []string
	// peers are what lists of peers name, by ConfigMap or text.
	peers map[string]*workload.Peers
	// grown are the recorded replicas that were added to a queued job.
	grown growth
}

// New returns the plan of a worker-led job.
func New(base *state.Plan, observed *state.Input) *Plan {
	f := &facts{in: observed, peers: map[string]*workload.Peers{}}
	observed.Restore(f.identify)
	f.readWorkers()
	base.Invalidate(f.tooMany...)
	return &Plan{
		out: base, in: observed, facts: f,
		handshake: handshake.New(base, observed, f.change()), sizes: rightsize.New(base, observed), execution: scaling.NewExecution(base, observed),
	}
}

// Decide applies the rules of a worker-led job, stage by stage, until one settles the decision.
func (p *Plan) Decide(apply func([]state.Rule) state.Result) state.Outcome {
	if p.facts.isExcessive() {
		apply(p.rulesOfExcess())
		return p.outcome(ranked{}, gangs.Plan{}, disruptions{})
	}
	if apply(p.counting()) == state.Settled {
		return p.outcome(ranked{}, gangs.Plan{}, disruptions{})
	}
	replicas := p.assign()
	failing := p.failing(replicas)
	if apply(failing.rules()) == state.Settled {
		return p.outcome(*replicas, gangs.Plan{}, disruptions{})
	}
	found := failing.backOffDisrupted()
	staffing := p.staffing(replicas, found)
	if apply(staffing.rules()) == state.Settled {
		return p.outcome(*replicas, gangs.Plan{}, found)
	}
	return p.outcome(*replicas, staffing.staff(), found)
}

// readWorkers computes and checks the counts of a worker-led job before other data is sized by
// them. Schema and webhook reject a job with too many pods. The scale subresource and writes of the
// status bypass both.
func (f *facts) readWorkers() {
	f.recorded = ranks.Read(f.in.Job.Status.CompletedRanks)
	f.grown = f.readGrowth(&f.in.Job.Status)
	f.counts = sizing.Wanted(f.counted())
	if state.IsFinished(&f.in.Job.Status) {
		return
	}
	if f.tooMany = sizing.Excess(&f.in.Observed, &f.counts); len(f.tooMany) > 0 {
		return
	}
	f.indexes = f.desiredIndexes()
	f.resizes = sizing.FindResizes(f.in.Observed, &f.counts)
	if f.in.Job.Status.Scaling == nil && sizing.IsStatusOfOperator(f.in.Job) {
		// No other count was requested: the pods are not created yet.
		f.resizes = nil
	}
	f.tooMany = f.unbuildable()
}
