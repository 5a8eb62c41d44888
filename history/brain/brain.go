// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package brain optimizes a job by what similar finished jobs used. It is pure.
//
// The request of a resource is
//
//	min(Q95, 2 * Q50) * 1.07
//
// Q are quantiles of the peaks of similar jobs, each with the weight similarity * 2^(-age / 14 days) * 2^(-newer / 16).
// Decaying weights, a high quantile and a margin are the method of Google's Autopilot (Rzadca et al., EuroSys 2020) and
// of the Kubernetes Vertical Pod Autoscaler. There are at most 64 values, so they need no histogram.
//
// A wrong past is bounded: a request moves only so far from the template. The past of a resource is ignored once
// the job has used more than it says. All else is decided by package local.
package brain

import (
	"context"
	"fmt"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/history/record"
)

// MaxJobs bounds the finished jobs that are compared.
const MaxJobs = 64

// Past is what is recorded of a job and of those that may be similar.
type Past struct {
	// Job is the job that is optimized.
	Job record.Job
	// Finished are jobs of the same namespace and family, the newest first. Those beyond MaxJobs are ignored.
	Finished []record.Job
	// Samples are what some of them reported, by UID.
	Samples map[string][]record.Sample
}

// Optimizer optimizes one job by its past.
type Optimizer struct {
	settings local.Settings
	local    *local.Optimizer
	past     memory
}

var _ optimizer.Optimizer = (*Optimizer)(nil)

// New returns the optimizer of a job with that past, whose settings bound the plans.
func New(settings local.Settings, past Past) *Optimizer {
	return &Optimizer{settings: settings, local: local.New(settings), past: recall(past)}
}

// Generate implements [optimizer.Optimizer].
func (o *Optimizer) Generate(ctx context.Context, stage optimizer.Stage, job *optimizer.Job) (optimizer.Plan, error) {
	isEarly := !job.LastPlan.IsZero() && job.Now.Sub(job.LastPlan) < o.settings.PlanInterval
	plan, err := o.local.Generate(ctx, stage, job)
	if err != nil || stage != optimizer.StageCreate || job.Busy || isEarly {
		return plan, err
	}
	d := o.decide(job)
	made, err := optimizer.Check(d.first(plan), job)
	if err != nil {
		plan.Reason = fmt.Sprintf("%s (the past is ignored: %s)", plan.Reason, err)
		return plan, nil
	}
	return made, nil
}

// RecoverOOM implements [optimizer.Optimizer]. No replica gets less than by the local rule.
func (o *Optimizer) RecoverOOM(ctx context.Context, killed []optimizer.Replica, job *optimizer.Job) (optimizer.Plan, error) {
	plan, err := o.local.RecoverOOM(ctx, killed, job)
	if err != nil {
		return plan, err
	}
	more := o.decide(job).recover(killed, plan)
	checked, err := optimizer.Check(more, job)
	if err != nil || checked.Empty() {
		return plan, nil //nolint:nilerr // what the past adds does not fit: the local plan does
	}
	return checked, nil
}
