// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/internal/service"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheOperatorUnderstandsTheExample(t *testing.T) {
	t.Parallel()
	rules := local.New(local.Defaults())
	server := httptest.NewServer(handler(rules))
	t.Cleanup(server.Close)
	asks, err := remote.New(service.Settings{URL: server.URL, Timeout: remote.DefaultTimeout}, rules)
	expect.NoError(t, err)
	job := &optimizer.Job{
		Namespace: "default", Name: "job", Now: time.Unix(1_764_000_000, 0),
		Tasks:  []optimizer.Task{{Name: "worker", Role: optimizer.RoleWorker, Replicas: 1, Min: 1, Max: 1}},
		Limits: optimizer.Limits{Job: optimizer.Resources{CPU: 10_000}},
	}
	plan, err := asks.Generate(t.Context(), optimizer.StageCreate, job)
	if err != nil || len(plan.Tasks) != 1 || plan.Tasks[0].Requests.CPU != 2000 {
		t.Errorf("got %+v and %v, want a fifth of the limit", plan, err)
	}
}
