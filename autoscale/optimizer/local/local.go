// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package local is the optimizer that decides by the usage of the job alone. docs/optimizer.md has a table of
// its rules. It is pure.
//
// A decision tries the rules in their sequence, and the first that changes something makes the plan. Urgent
// rules, which end a shortage, come first and need [Settings.UrgentInterval] since the last plan. The others
// need [Settings.PlanInterval]. Requests only shrink to the peak usage of the whole job and a margin, so a task
// cannot alternate between two sizes.
package local

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

// Optimizer is the local optimizer.
type Optimizer struct {
	settings Settings
}

var _ optimizer.Optimizer = (*Optimizer)(nil)

// New returns an optimizer with settings that [Settings.Check] accepts.
func New(settings Settings) *Optimizer { return &Optimizer{settings: settings} }

// rule makes a plan, or explains in the reason of an empty one why it does not.
type rule func(*observation) optimizer.Plan

// Generate implements [optimizer.Optimizer].
func (o *Optimizer) Generate(_ context.Context, stage optimizer.Stage, job *optimizer.Job) (optimizer.Plan, error) {
	if job.Busy {
		return optimizer.Plan{Reason: "waiting: a plan executes, or the job is resized or restarts"}, nil
	}
	seen := observe(&o.settings, job)
	var urgent, others []rule
	switch stage {
	case optimizer.StageCreate:
		others = []rule{initial}
	case optimizer.StageWorkerInitial:
		urgent, others = []rule{fullMemory, hotServers}, []rule{workers}
	case optimizer.StagePSInitial:
		urgent, others = []rule{fullMemory, hotServers}, []rule{servers}
	case optimizer.StageRunning:
		urgent, others = []rule{fullMemory, slower, hotServers, saturated}, []rule{workers, shrink}
	default:
		return optimizer.Plan{}, fmt.Errorf("stage is %.63q: must be CREATE, WORKER_INITIAL, PS_INITIAL or RUNNING", stage)
	}
	plan := try(seen, urgent, o.settings.UrgentInterval)
	if !plan.Empty() {
		return plan, nil
	}
	return try(seen, others, o.settings.PlanInterval), nil
}

// try returns the first plan of the rules that changes something and passes the check, else the reason of the
// last rule.
func try(seen *observation, rules []rule, interval time.Duration) optimizer.Plan {
	if !elapsed(seen.job, seen.job.LastPlan, interval) {
		return optimizer.Plan{Reason: fmt.Sprintf("waiting: the last plan is younger than %s", interval)}
	}
	var last optimizer.Plan
	for _, rule := range rules {
		last = rule(seen)
		if checked, err := optimizer.Check(last, seen.job); err != nil {
			last = optimizer.Plan{Reason: err.Error()}
		} else if last = checked; !checked.Empty() {
			return checked
		}
	}
	return last
}

// elapsed reports whether an interval has passed since a time; a zero time is never.
func elapsed(job *optimizer.Job, since time.Time, interval time.Duration) bool {
	return since.IsZero() || job.Now.Sub(since) >= interval
}

// RecoverOOM implements [optimizer.Optimizer].
func (o *Optimizer) RecoverOOM(_ context.Context, killed []optimizer.Replica, job *optimizer.Job) (optimizer.Plan, error) {
	seen := observe(&o.settings, job)
	plan := optimizer.Plan{}
	room := seen.room().Memory
	for _, replica := range killed {
		had := replica.Requests.Memory
		more := min(had+min(share(had, o.settings.OOMFactor-1), o.settings.OOMStep), had+room)
		if had <= 0 || more <= had {
			continue
		}
		room -= more - had
		plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: replica.Pod, Requests: optimizer.Resources{Memory: seen.cap(more, seen.ceiling.Memory)}})
	}
	plan.Reason = "OutOfMemory: " + english.Plural(len(plan.Migrate), "replica was", "replicas were") + " killed out of memory; more is given"
	checked, err := optimizer.Check(plan, job)
	if err != nil {
		return optimizer.Plan{}, err
	}
	if checked.Empty() {
		checked.Reason = "OutOfMemory: no replica can have more memory by the limits of the job, of a replica, and of the largest node"
	}
	return checked, nil
}
