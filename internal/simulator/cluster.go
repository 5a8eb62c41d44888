// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"time"
)

// Policy places jobs. It is asked after each round.
type Policy interface {
	// Target returns the batch that a job trains with, 0 where its goodput decides.
	Target(job *Submission) int
	// Place returns for each job, by name, the node of each rank; a job that is not in
	// the answer or has no nodes waits. previous is the last answer without the jobs that
	// have finished.
	Place(now int, jobs []*Job, cluster Cluster, previous map[string][]int) map[string][]int
}

// Cluster is some nodes that are alike.
type Cluster struct {
	Nodes, GPUs int
}

// Options are the rules of a simulation.
type Options struct {
	Cluster
	// Interval is how long a round is, and Restart what a changed placement costs, in
	// seconds.
	Interval, Restart int
	// Interference is the part of its speed that a distributed job loses on a node that
	// it shares with another one.
	Interference float64
	// Limit ends a simulation that does not come to its end, in seconds.
	Limit int
}

// Artifact returns the rules of the artifact's recorded results.
func Artifact() Options {
	return Options{Cluster: Cluster{Nodes: 16, GPUs: 4}, Interval: 60, Restart: 30, Limit: 60 * 86400}
}

// Outcome is what became of a job.
type Outcome struct {
	Name        string
	Application string
	// Submitted and Completed are in seconds since the begin.
	Submitted, Completed int
	Restarts             int
	// GPUSeconds is the GPU time that it has had.
	GPUSeconds float64
}

// JCT returns the job completion time in seconds.
func (o *Outcome) JCT() int { return o.Completed - o.Submitted }

// Result is what became of a workload.
type Result struct {
	Jobs []Outcome
	// Rounds has how long the policy took for each round.
	Rounds []time.Duration
}

// Run replays a workload. The clock measures the policy's rounds.
func Run(workload []Submission, policy Policy, options Options, clock func() time.Time) (*Result, error) {
	jobs := make([]*Job, 0, len(workload))
	for _, submission := range workload {
		jobs = append(jobs, newJob(submission, policy))
	}
	result := &Result{}
	placed := map[string][]int{}
	for now := 0; slices.ContainsFunc(jobs, func(j *Job) bool { return !j.done() }); {
		if now > options.Limit {
			return nil, fmt.Errorf("the workload does not come to its end within %d s", options.Limit)
		}
		shared := options.shared(placed)
		for _, job := range jobs {
			lost := 0.0
			if isDistributed(placed[job.Name]) && slices.ContainsFunc(placed[job.Name], func(node int) bool { return shared[node] > 1 }) {
				lost = options.Interference
			}
			job.step(options.Interval, lost)
		}
		now += options.Interval
		var waiting []*Job
		for _, job := range jobs {
			if job.Time <= now && !job.done() {
				waiting = append(waiting, job)
			}
			if job.done() {
				delete(placed, job.Name)
			}
		}
		if len(waiting) == 0 {
			continue
		}
		began := clock()
		next := policy.Place(now, waiting, options.Cluster, placed)
		result.Rounds = append(result.Rounds, clock().Sub(began))
		if err := options.check(next); err != nil {
			return nil, err
		}
		for _, job := range waiting {
			// Where a job waited and waits, nothing changes.
			if !slices.Equal(next[job.Name], placed[job.Name]) {
				job.place(next[job.Name], options.Restart)
			}
		}
		placed = next
	}
	for _, job := range jobs {
		result.Jobs = append(result.Jobs, Outcome{
			Name: job.Name, Application: job.Application.Name, Submitted: job.Time, Completed: job.completion,
			Restarts: job.Restarts, GPUSeconds: job.Attained,
		})
	}
	return result, nil
}

// shared counts the distributed jobs of each node.
func (o *Options) shared(placed map[string][]int) []int {
	counts := make([]int, o.Nodes)
	for _, nodes := range placed {
		if !isDistributed(nodes) {
			continue
		}
		for i, node := range nodes {
			if !slices.Contains(nodes[:i], node) {
				counts[node]++
			}
		}
	}
	return counts
}

func isDistributed(nodes []int) bool {
	return slices.ContainsFunc(nodes, func(node int) bool { return node != nodes[0] })
}

// check reports a policy that gives away what is not there.
func (o *Options) check(placed map[string][]int) error {
	used := make([]int, o.Nodes)
	for name, nodes := range placed {
		for _, node := range nodes {
			if node < 0 || node >= o.Nodes {
				return fmt.Errorf("job %s is placed on node %d of %d", name, node, o.Nodes)
			}
			if used[node]++; used[node] > o.GPUs {
				return fmt.Errorf("node %d has %d GPUs, and more are given away", node, o.GPUs)
			}
		}
	}
	return nil
}
