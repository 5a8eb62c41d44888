// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package start measures how fast the pods of jobs are created and running on the real scheduler, and
// with how many requests. The reference is a client that creates the same pods itself.
package start

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
)

const (
	// maxSlower is how many times as long as the plain client the operator may take for many jobs, and
	// maxSlowerJob for one large job.
	maxSlower    = 1.3
	maxSlowerJob = 1.5
	// maxRequests is the maximum number of requests per pod, of all programs.
	maxRequests = 7
	// jobPods and jobRounds are the pods of the large job, and the rounds of each client.
	jobPods, jobRounds = 5000, 3
)

// Options are the flags of the sections.
type Options struct {
	jobs, pods, nodes, rounds int
	folder                    string
	maxSlower                 float64
}

// Add registers the flags.
func (o *Options) Add(flags *flag.FlagSet) {
	flags.IntVar(&o.jobs, "profile-jobs", 100, "profile: jobs of a round")
	flags.IntVar(&o.pods, "profile-pods", 8, "profile: pods of each job")
	flags.IntVar(&o.nodes, "profile-nodes", 20, "profile: nodes")
	flags.IntVar(&o.rounds, "profile-rounds", 5, "profile: rounds of each client; the table has medians")
	flags.StringVar(&o.folder, "profile-folder", filepath.Join("out", "profile"), "profile: folder for processor profiles and flame graphs of one more round, and its requests as CSV and SVG; none when empty")
}

// Sections returns the sections: many small jobs, and one large job.
func (o *Options) Sections(b *harness.Bench) []harness.Section {
	return []harness.Section{
		{Name: "profile", Run: func(ctx context.Context) (figures.Limits, error) {
			many := *o
			many.maxSlower = maxSlower
			return many.run(ctx, b)
		}},
		{Name: "job", Run: func(ctx context.Context) (figures.Limits, error) {
			one := Options{jobs: 1, pods: jobPods, nodes: o.nodes, rounds: jobRounds, maxSlower: maxSlowerJob}
			return one.run(ctx, b)
		}},
	}
}

// run alternates between the clients, so that both meet the same machine.
func (o *Options) run(ctx context.Context, b *harness.Bench) (missed figures.Limits, err error) {
	if o.jobs < 1 || o.pods < 1 || o.nodes < 1 || o.rounds < 1 {
		return nil, errors.New("-profile-jobs, -profile-pods, -profile-nodes and -profile-rounds have to be more than 0")
	}
	w, err := o.newWorld(ctx, b)
	if w != nil {
		defer harness.Close(&err, w.stop)
	}
	if err != nil {
		return nil, err
	}
	if err := w.learnPods(ctx); err != nil {
		return nil, err
	}
	var plain, ours []*round
	for i := range o.rounds {
		reference, err := w.play(ctx, fmt.Sprintf("plain client, round %d", i+1), w.createPods)
		if err != nil {
			return nil, err
		}
		operator, err := w.play(ctx, fmt.Sprintf("operator, round %d", i+1), w.submitJobs)
		if err != nil {
			return nil, err
		}
		plain, ours = append(plain, reference), append(ours, operator)
	}
	b.Data = []results.Start{startOf("plain client", plain), startOf("operator", ours)}
	fmt.Fprintf(b.Out, "Jobs: %d of %d pods on %d nodes, medians of %d rounds.\n\n", o.jobs, o.pods, o.nodes, o.rounds)
	if err := o.print(b, plain, ours); err != nil {
		return nil, err
	}
	o.require(&missed, "created", timeOf(plain, created), timeOf(ours, created))
	o.require(&missed, "running", timeOf(plain, running), timeOf(ours, running))
	each := float64(o.jobs * o.pods)
	missed.Require(requestsOf(ours)/each <= maxRequests, "%.2f requests for a pod, the limit is %d", requestsOf(ours)/each, maxRequests)
	if o.folder == "" {
		return missed, nil
	}
	return missed, w.trace(ctx, filepath.Clean(o.folder))
}

func (o *Options) require(missed *figures.Limits, what string, plain, ours float64) {
	missed.Require(ours <= o.maxSlower*plain, "all pods %s after %.2f times as long as with a plain client, the limit is %.1f", what, ours/plain, o.maxSlower)
}
