// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package optimizer

import "context"

// Optimizer decides about one job. Implementations must not change the job.
type Optimizer interface {
	// Generate returns the plan for a stage. An empty plan changes nothing, and its reason says why.
	Generate(ctx context.Context, stage Stage, job *Job) (Plan, error)
	// RecoverOOM returns a plan that gives more memory to replicas that were killed out of memory.
	RecoverOOM(ctx context.Context, killed []Replica, job *Job) (Plan, error)
}

// Stage is how much is known about a job.
type Stage string

const (
	// StageCreate is a job without usage. Only its spec and its group's history are known.
	StageCreate Stage = "CREATE"
	// StageWorkerInitial is a job whose first usage is known. It decides the number of workers.
	StageWorkerInitial Stage = "WORKER_INITIAL"
	// StagePSInitial is a job whose usage with several workers is known. It decides the parameter servers.
	StagePSInitial Stage = "PS_INITIAL"
	// StageRunning is a job whose bottleneck is observed.
	StageRunning Stage = "RUNNING"
)

// MinSamples is how many samples of an unchanged job a stage after CREATE needs.
const MinSamples = 5

// StageOf returns the stage that a job is in now, by the stage of the last decision and the samples since.
func StageOf(job *Job) Stage {
	if len(job.Settled()) < MinSamples {
		if job.Stage == "" {
			return StageCreate
		}
		return job.Stage
	}
	switch {
	case !job.has(RoleParameterServer):
		return StageRunning
	case job.Stage == "" || job.Stage == StageCreate:
		return StageWorkerInitial
	case job.Stage == StageWorkerInitial:
		return StagePSInitial
	default:
		return StageRunning
	}
}
