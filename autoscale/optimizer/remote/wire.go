// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
)

// Version is the version of the protocol.
const Version = 1

// Operation is what a request asks for.
type Operation string

const (
	// OperationGenerate asks for the plan of a stage.
	OperationGenerate Operation = "generate"
	// OperationRecoverOOM asks for a plan for replicas that were killed out of memory.
	OperationRecoverOOM Operation = "recoverOOM"
)

// Request is the body of a request.
type Request struct {
	// Version is that of the protocol.
	Version int `json:"version"`
	// Operation is what is asked for.
	Operation Operation `json:"operation"`
	// Stage is the stage of the job, for operation generate.
	Stage optimizer.Stage `json:"stage,omitempty"`
	// Killed are the replicas that were killed, for operation recoverOOM.
	Killed []optimizer.Replica `json:"killed,omitempty"`
	// Job is what is known of the job.
	Job *optimizer.Job `json:"job"`
}

// Answer is the body of an answer.
type Answer struct {
	// Namespace and Name are those of the job, repeated.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Plan is the plan.
	Plan optimizer.Plan `json:"plan"`
}

// Answer lets an optimizer answer the request, as a service does.
func (r *Request) Answer(ctx context.Context, by optimizer.Optimizer) (Answer, error) {
	if r.Version != Version || r.Job == nil {
		return Answer{}, fmt.Errorf("version is %d: must be %d, and the request must have a job", r.Version, Version)
	}
	var plan optimizer.Plan
	var err error
	switch r.Operation {
	case OperationGenerate:
		plan, err = by.Generate(ctx, r.Stage, r.Job)
	case OperationRecoverOOM:
		plan, err = by.RecoverOOM(ctx, r.Killed, r.Job)
	default:
		err = fmt.Errorf("operation is %.63q: must be generate or recoverOOM", r.Operation)
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{Namespace: r.Job.Namespace, Name: r.Job.Name, Plan: plan}, nil
}
