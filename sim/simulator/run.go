// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Policy places jobs after each round.
type Policy interface {
	// Target returns the batch that a job trains with, 0 where its goodput decides.
	Target(job *Submission) int
	// Place returns for each job, by name, the node of each rank. A job without nodes in the
	// answer waits. previous is the last answer without the finished jobs.
	Place(now int, jobs []*Job, cluster Cluster, previous map[string][]int) map[string][]int
}

// Cluster is some nodes that are alike but for the types of their devices.
type Cluster struct {
	Nodes, GPUs int
	// Devices is the type of each node's devices; nil if all are of one type.
	Devices []string
	// Lost are the nodes that are lost at present; nil for none.
	Lost []bool
	Racks
}

// isLost reports whether a node is lost.
func (c *Cluster) isLost(node int) bool { return node < len(c.Lost) && c.Lost[node] }

// Options are the rules of a simulation.
type Options struct {
	Cluster
	// Interval is the length of a round, and Restart the cost of a changed placement, in
	// seconds.
	Interval, Restart int
	// Interference is the part of its speed that a distributed job loses on a node that
	// it shares with another one.
	Interference float64
	// Lose is the part of the nodes that is lost at any time: nodes fail and return at random.
	Lose float64
	// Seed is that of the lost nodes.
	Seed uint64
	// Limit bounds the simulated time, in seconds.
	Limit int
}

// Artifact returns the rules of the artifact's recorded results.
func Artifact() Options {
	return Options{Cluster: Cluster{Nodes: 16, GPUs: 4}, Interval: 60, Restart: 30, Limit: 60 * 86400}
}

// outage is the mean time that a lost node stays lost, in seconds.
const outage = 1800

// simulation is a run.
type simulation struct {
	Options
	policy Policy
	clock  func() time.Time
	random *rand.Rand
	jobs   []*Job
	placed map[string][]int
	now    int
	result *Result
}

// Run replays a workload. The clock measures the policy's rounds.
func Run(workload []Submission, policy Policy, options Options, clock func() time.Time) (*Result, error) {
	s := &simulation{
		Options: options, policy: policy, clock: clock, random: rand.New(rand.NewPCG(options.Seed, 3)),
		placed: map[string][]int{}, result: &Result{Capacity: options.Nodes * options.GPUs},
	}
	for _, submission := range workload {
		s.jobs = append(s.jobs, newJob(submission, policy))
	}
	if options.Lose > 0 {
		s.Lost = make([]bool, s.Nodes)
	}
	for slices.ContainsFunc(s.jobs, func(j *Job) bool { return !j.done() }) {
		if s.now > s.Limit {
			return nil, fmt.Errorf("jobs are unfinished after %d s of simulated time", s.Limit)
		}
		if err := s.round(); err != nil {
			return nil, fmt.Errorf("round at %d s: %w", s.now, err)
		}
	}
	for _, job := range s.jobs {
		s.result.Jobs = append(s.result.Jobs, Outcome{
			Name: job.Name, Application: job.Application.Name, Tenant: job.Tenant, Submitted: job.Time, Completed: job.completion,
			Restarts: job.Restarts, GPUSeconds: job.Attained, Starved: job.starved,
		})
	}
	return s.result, nil
}

// round trains all jobs for the interval, then places them.
func (s *simulation) round() error {
	s.train()
	s.now += s.Interval
	s.failNodes()
	var active []*Job
	for i, job := range s.jobs {
		if job.Time <= s.now && !job.done() {
			active = append(active, job)
		}
		if _, has := s.placed[job.Name]; has && job.done() {
			delete(s.placed, job.Name)
			s.result.record(job.completion, i, 0)
		}
	}
	if len(active) == 0 {
		return nil
	}
	began := s.clock()
	next := s.policy.Place(s.now, active, s.Cluster, s.placed)
	s.result.Rounds = append(s.result.Rounds, s.clock().Sub(began))
	if err := s.check(next); err != nil {
		return err
	}
	return s.move(next)
}

// train advances the time of all jobs by the interval.
func (s *simulation) train() {
	shared, generous := s.shared(), s.isGenerous()
	for _, job := range s.jobs {
		lost, nodes := 0.0, s.placed[job.Name]
		if isDistributed(nodes) && slices.ContainsFunc(nodes, func(node int) bool { return shared[node] > 1 }) {
			lost = s.Interference
		}
		if generous && len(nodes) == 0 && job.Time < s.now && !job.done() {
			job.starved += s.Interval
		}
		job.step(s.Interval, lost)
	}
}

// move gives the jobs their new placements.
func (s *simulation) move(next map[string][]int) error {
	for i, job := range s.jobs {
		nodes := next[job.Name]
		if job.Time > s.now || job.done() || slices.Equal(nodes, s.placed[job.Name]) {
			continue
		}
		job.devices, job.slowdown, job.span = s.devicesOf(nodes), s.slowdown(nodes), s.span(nodes)
		job.place(nodes, s.Restart)
		s.result.record(s.now, i, len(nodes))
		if len(nodes) > 0 && !job.isMeasured() {
			return fmt.Errorf("job %s is placed on %d nodes with %d replicas, for which application %s has no step times",
				job.Name, len(job.Placement), len(nodes), job.Application.Name)
		}
	}
	s.placed = next
	return nil
}

// failNodes loses nodes, and returns lost ones, at random.
func (s *simulation) failNodes() {
	if s.Lose <= 0 {
		return
	}
	returns := min(1, float64(s.Interval)/outage)
	fails := min(1, returns*s.Lose/(1-s.Lose))
	for node := range s.Lost {
		chance := fails
		if s.Lost[node] {
			chance = returns
		}
		if s.random.Float64() < chance {
			s.Lost[node] = !s.Lost[node]
		}
	}
}

// isGenerous reports whether a job has more than one replica, the least of every job.
func (s *simulation) isGenerous() bool {
	for _, nodes := range s.placed {
		if len(nodes) > 1 {
			return true
		}
	}
	return false
}

// shared counts the distributed jobs of each node.
func (s *simulation) shared() []int {
	counts := make([]int, s.Nodes)
	for _, nodes := range s.placed {
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

// check returns an error for placements beyond the capacity.
func (s *simulation) check(placed map[string][]int) error {
	used := make([]int, s.Nodes)
	for name, nodes := range placed {
		for _, node := range nodes {
			switch {
			case node < 0 || node >= s.Nodes:
				return fmt.Errorf("job %s is placed on node %d: must be from 0 to %d", name, node, s.Nodes-1)
			case s.isLost(node):
				return fmt.Errorf("job %s is placed on node %d, which is lost", name, node)
			}
			if used[node]++; used[node] > s.GPUs {
				return fmt.Errorf("more than the %d GPUs of node %d are given to jobs", s.GPUs, node)
			}
		}
	}
	return nil
}
