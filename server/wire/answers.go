// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
)

// Reply is the envelope of every answer.
type Reply struct {
	// Success is whether the request succeeded.
	Success bool `json:"success"`
	// Code is 0 for success and 1 for failure.
	Code int `json:"code"`
	// Message describes the result, or the cause of a failure.
	Message string `json:"message"`
	// Data is the content of the answer; null if there is none.
	Data any `json:"data"`
}

// Success returns the envelope of a successful request.
func Success(message string, data any) Reply {
	return Reply{Success: true, Code: 0, Message: message, Data: data}
}

// Failure returns the envelope of a failed request.
func Failure(message string) Reply {
	return Reply{Success: false, Code: 1, Message: message}
}

// Encode returns the body of an answer.
func (r Reply) Encode() ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding a reply: %w", err)
	}
	return body, nil
}

// Replicas lists the replicas of one job, or the DDP learners of one aggregator. The collectors of an
// aggregator are null.
type Replicas struct {
	// Namespace is the namespace of the job.
	Namespace string `json:"namespace"`
	// Coordinator is the name of the pod of the coordinator or aggregator.
	Coordinator string `json:"coordinator"`
	// Collectors are the addresses of collectors.
	Collectors []string `json:"collectors"`
	// Learners are the addresses of learners.
	Learners []string `json:"learners"`
}

// NewReplicas returns the answer with URLs of a job's replicas.
func NewReplicas(job *v2alpha1.DIJob, coordinator string, urls membership.URLs) *Replicas {
	return &Replicas{Namespace: job.Namespace, Coordinator: coordinator, Collectors: urls.Collectors, Learners: urls.Learners}
}

// Replica describes one replica.
type Replica struct {
	// Namespace is the namespace of the job.
	Namespace string `json:"namespace"`
	// Coordinator is the name of the pod of the job's coordinator.
	Coordinator string `json:"coordinator"`
	// ReplicaType is the role of the replica.
	ReplicaType names.ReplicaType `json:"replicaType"`
	// Name is the name of the replica's pod.
	Name string `json:"name"`
}

// Advice is the number of replicas that the ratio rule advises a job to have.
type Advice struct {
	// Replicas are the replicas by task.
	Replicas map[string]int32 `json:"replicas"`
	// DecidedAt is the time of the decision, in RFC 3339.
	DecidedAt string `json:"decided_at"`
	// Reason and Message describe the decision.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
