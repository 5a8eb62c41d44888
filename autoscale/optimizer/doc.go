// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optimizer decides the replicas and resources of one job by what it uses. It is pure: it does not
// read or write a cluster, log, or read the clock.
//
// An [Optimizer] gets a [Job] and returns a [Plan], for one of four stages ([StageOf]). Package local has
// rules that need only the job itself. Package remote asks a service. [Check] validates the plan of any
// optimizer and clamps it to the limits of the job, and [ScalePlan] builds the object. So a caller does, about
// every 30 seconds for each job:
//
//	stage := optimizer.StageOf(job)
//	plan, err := choice.Generate(ctx, stage, job)
//	checked, err := optimizer.Check(plan, job) // an error says why the plan is refused
//	if !checked.Empty() {
//		create(optimizer.ScalePlan(job, checked))
//	}
//	record(stage, checked.Reason, optimizer.Peaks(job)) // in the status of the job
//
// Optimizers remember nothing. What they need of the past is in the job: its samples, peaks, and the times of
// its last plans.
package optimizer
