// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package diserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// pathReplicas is the path of the v1 protocol.
const pathReplicas = "/v1alpha1/replicas"

// Asked is a number of replicas and the resources of each; what is absent
// keeps the template's.
type Asked struct {
	Replicas int32  `json:"replicas"`
	CPUs     string `json:"cpus,omitempty"`
	GPUs     string `json:"gpus,omitempty"`
	Memory   string `json:"memory,omitempty"`
}

// Coordinator names a coordinator-led job by its coordinator's pod.
type Coordinator struct {
	Namespace string `json:"namespace"`
	Name      string `json:"coordinator"`
}

// Demand is a request for more replicas of a job, or fewer.
type Demand struct {
	Coordinator
	Collectors *Asked `json:"collectors,omitempty"`
	Learners   *Asked `json:"learners,omitempty"`
}

// Failed names the pods to replace.
type Failed struct {
	Coordinator
	Collectors []string `json:"collectors,omitempty"`
	Learners   []string `json:"learners,omitempty"`
}

// Replicas are the addresses of replicas that a request is answered with.
type Replicas struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
	// Raw is the answer as it came.
	Raw json.RawMessage `json:"-"`
}

// Add asks for more replicas of a coordinator-led job and returns them.
func (c *Client) Add(ctx context.Context, demand *Demand) (*Replicas, error) {
	return c.replicas(ctx, http.MethodPost, pathReplicas, demand)
}

// Delete asks for fewer replicas of a coordinator-led job and returns those
// that go.
func (c *Client) Delete(ctx context.Context, demand *Demand) (*Replicas, error) {
	return c.replicas(ctx, http.MethodDelete, pathReplicas, demand)
}

// Replace asks for new replicas in place of others and returns the new ones.
func (c *Client) Replace(ctx context.Context, failed *Failed) (*Replicas, error) {
	return c.replicas(ctx, http.MethodPost, pathReplicas+"/failed", failed)
}

func (c *Client) replicas(ctx context.Context, method, path string, body any) (*Replicas, error) {
	asked, err := newCall(method, path, body)
	if err != nil {
		return nil, err
	}
	reply, err := c.do(ctx, asked)
	if err != nil {
		return nil, err
	}
	answer := &Replicas{Raw: reply.Data}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return nil, fmt.Errorf("decoding di-server's answer: %w", err)
	}
	return answer, nil
}

// Resize asks for more replicas of a worker-led job, or fewer where the number
// is negative, and returns what di-server says of it.
func (c *Client) Resize(ctx context.Context, namespace, job string, by int32) (string, error) {
	method := http.MethodPost
	if by < 0 {
		method, by = http.MethodDelete, -by
	}
	path := "/v2alpha1/" + url.PathEscape(namespace+"."+job) + "/replicas"
	asked, err := newCall(method, path, Asked{Replicas: by})
	if err != nil {
		return "", err
	}
	reply, err := c.do(ctx, asked)
	return reply.Message, err
}
