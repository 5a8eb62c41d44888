// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer is the protocol that the program's roles speak among themselves:
// JSON over HTTP, on the one port that each of them has.
//
//	GET    /healthz     the process is alive
//	GET    /whoami      Identity
//	POST   /connect     a coordinator or aggregator starts to use this process; Identity
//	DELETE /disconnect  it stops to
//	POST   /collect     CollectRequest -> rollout.Result
//	GET    /state       policy.State after the last step of the learner
//	POST   /step        train.StepRequest -> policy.State
//	POST   /announce    Announcement -> Reception, to the learner that leads
//	POST   /finish      training has ended -> Empty
//	POST   /join        Join -> Joined, to the master of learners that span pods
//	GET    /progress    train.Progress of the last round
//	PUT    /pause       Pause -> Empty, to the driver of the training
//
// Errors come with a status of 400 or above and the body Failure.
package peer

import (
	"errors"
	"net/http"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// maxBody bounds requests and replies. The largest, the episodes of a round, are
// about 1 MiB.
const maxBody = 8 << 20

// Identity is what a process says of itself.
type Identity struct {
	Role string `json:"role"`
	Name string `json:"name"`
	// Rank is the rank among the job's workers, or among the parts of a learner.
	Rank int `json:"rank"`
	// WorldSize is the number of parts of a learner that has several.
	WorldSize int `json:"worldSize,omitempty"`
	// Leads is set on the learner that drives the training of a job of workers.
	Leads bool `json:"leads,omitempty"`
	Ready bool `json:"ready"`
}

// CollectRequest asks for a work unit to be played.
type CollectRequest struct {
	Unit    rollout.Unit   `json:"unit"`
	Weights policy.Weights `json:"weights"`
}

// Announcement tells the leading learner of a worker that it can use.
type Announcement struct {
	Task    string `json:"task"`
	Rank    int    `json:"rank"`
	Address string `json:"address"`
}

// Reception answers an announcement.
type Reception struct {
	// Finished is set once training has ended; the worker need not stay.
	Finished bool `json:"finished"`
}

// Join tells the master that a part of the learner is there.
type Join struct {
	Rank      int `json:"rank"`
	WorldSize int `json:"worldSize"`
}

// Joined answers how many of the parts are there.
type Joined struct {
	Count int `json:"count"`
}

// Pause says after which round training waits until it is told otherwise; 0 is
// never.
type Pause struct {
	After int `json:"after"`
}

// Empty is the body of replies that have nothing to say.
type Empty struct{}

// Failure is the body of replies that report an error.
type Failure struct {
	Error string `json:"error"`
	// Kind names the errors that the caller acts on.
	Kind string `json:"kind,omitempty"`
}

// kinds are the errors that keep their meaning on their way through HTTP.
func kinds() map[string]kind {
	return map[string]kind{
		"not-ready": {err: train.ErrNotReady, status: http.StatusServiceUnavailable},
		"diverged":  {err: train.ErrDiverged, status: http.StatusInternalServerError},
	}
}

type kind struct {
	err    error
	status int
}

// failureOf translates an error for the wire.
func failureOf(err error) (int, Failure) {
	for name, k := range kinds() {
		if errors.Is(err, k.err) {
			return k.status, Failure{Error: err.Error(), Kind: name}
		}
	}
	return http.StatusInternalServerError, Failure{Error: err.Error()}
}
