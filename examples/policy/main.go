// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command policy is DI Orchestrator with one more policy of the allocator: goodput, with at
// most eight elastic replicas for each job. Build it instead of cmd/di-orchestrator, and
// set operator.allocator.policy to capped.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/cmd/di-orchestrator/programs"
)

func main() {
	policy := capped{policy: goodput.New(goodput.DefaultSettings()), most: 8}
	os.Exit(programs.Main("example", programs.Policies{"capped": policy}))
}

// capped bounds the elastic replicas of jobs, and leaves the rest to another policy.
type capped struct {
	policy allocation.Policy
	most   int32
}

// Allocate implements allocation.Policy.
func (c capped) Allocate(job *allocation.Job, nodes []*allocation.Node) allocation.Placement {
	return c.policy.Allocate(c.bound(job), nodes)
}

// Optimize implements allocation.Policy. It must not change the round, so it copies the jobs.
func (c capped) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	bounded := *round
	bounded.Jobs = make([]*allocation.Job, len(round.Jobs))
	for i, job := range round.Jobs {
		bounded.Jobs[i] = c.bound(job)
	}
	return c.policy.Optimize(&bounded)
}

func (c capped) bound(job *allocation.Job) *allocation.Job {
	bounded := *job
	bounded.Wanted = max(min(job.Wanted, c.most), job.Min)
	return &bounded
}
