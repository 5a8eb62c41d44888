// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Policy decides where preemptible jobs run, and with how many replicas. Implementations must be
// deterministic: equal rounds give equal placements. They must not change the round, except its
// groups.
type Policy interface {
	// Allocate places one job on the free capacity of nodes, when it is submitted.
	Allocate(job *Job, nodes []*Node) Placement
	// Optimize places all jobs of a round. A job that the answer lacks keeps its placement.
	Optimize(round *Round) map[types.NamespacedName]Placement
}

// Round is the input of one decision about all jobs.
type Round struct {
	// Now is the time of the round.
	Now time.Time
	// Jobs are the jobs to place.
	Jobs []*Job
	// Nodes have the capacity that is free without these jobs.
	Nodes []*Node
	// Previous are the nodes of the jobs by rank; "" stands for a rank without a node.
	Previous map[types.NamespacedName][]string
	// Groups are the histories of groups of similar jobs, by name. The policy updates them, and the
	// caller persists them.
	Groups map[string]*Group
}

// Placement is where a job is placed, or why it is not.
type Placement struct {
	// Nodes are the names of the nodes by rank; empty where the job is not placed.
	Nodes []string
	// Reason says why in one word, one of the reasons below.
	Reason string
	// Message says it to a person.
	Message string
	// Usage is the usage of the job up to the round, for the caller to persist. The zero value
	// keeps the previous one.
	Usage Usage
}

// The reasons of placements, which those of the condition Allocated are.
const (
	ReasonPlaced               = v2alpha1.ReasonPlaced
	ReasonPartiallyPlaced      = v2alpha1.ReasonPartiallyPlaced
	ReasonInsufficientCapacity = v2alpha1.ReasonInsufficientCapacity
)

// Job is a job to place.
type Job struct {
	// Name is the job's namespace and name.
	Name types.NamespacedName
	// Priority is that of its pods: the higher goes first.
	Priority int32
	// Created is when it was submitted: the older of a priority goes first.
	Created time.Time
	// Tasks are its parts, in the order of their ranks.
	Tasks []Task
	// Elastic is the index of the task that is resized, -1 for none.
	Elastic int
	// Min and Wanted bound the replicas of the elastic task.
	Min, Wanted int32
	// Ended are the ranks that have succeeded. They keep their room as long as
	// nobody else has taken it, and a job stays where it is without it.
	Ended map[int]bool
	// Held is for how long the job has been placed as it is.
	Held time.Duration
	// Group is the name of the group of similar jobs. Jobs of a group share a model and a history.
	Group string
	// Report is what the job reported last; nil if it reports nothing.
	Report *profilings.Report
	// Usage is what the job has used so far.
	Usage Usage
}

// Task is some replicas of a job that are alike.
type Task struct {
	// Name is its name in the job.
	Name string
	// Replicas is how many there are of it; of the elastic one as many as fit.
	Replicas int32
	// Pod is what one replica asks for, and which nodes it accepts.
	Pod *Requirements
}

// size returns how many replicas a job has with so many of its elastic task.
func (j *Job) size(elastic int32) int32 {
	var total int32
	for i := range j.Tasks {
		total += j.replicas(i, elastic)
	}
	return total
}

func (j *Job) replicas(task int, elastic int32) int32 {
	if task == j.Elastic {
		return elastic
	}
	return j.Tasks[task].Replicas
}

// Ranks returns the requirements of each rank of a job that has so many replicas
// of its elastic task.
func (j *Job) Ranks(elastic int32) iter.Seq2[int, *Requirements] {
	return func(yield func(int, *Requirements) bool) {
		rank := 0
		for task := range j.Tasks {
			for range j.replicas(task, elastic) {
				if !yield(rank, j.Tasks[task].Pod) {
					return
				}
				rank++
			}
		}
	}
}

// ElasticOf returns how many replicas of the elastic task make a job of that
// size, false where none do.
func (j *Job) ElasticOf(size int) (int32, bool) {
	elastic := int32(size) - j.size(0)
	return elastic, elastic >= 0 && (j.Elastic >= 0 || elastic == 0)
}

// resized returns where a job is to be that was placed before, as many replicas
// of its elastic task as are in its range now: those that go are the last, and
// those that come have no node yet. It returns false for a job that had no place,
// or that of another job.
func (j *Job) resized(previous []string) (nodes []string, elastic int32, fits bool) {
	had, fits := j.ElasticOf(len(previous))
	if !fits || len(previous) == 0 || j.Elastic < 0 {
		return previous, 0, fits && len(previous) > 0
	}
	elastic = min(max(had, j.Min), j.Wanted)
	end := had
	for task := range j.Elastic {
		end += j.Tasks[task].Replicas
	}
	switch {
	case elastic < had:
		return slices.Concat(previous[:end-had+elastic], previous[end:]), elastic, true
	case elastic > had:
		return slices.Concat(previous[:end], make([]string, elastic-had), previous[end:]), elastic, true
	}
	return previous, elastic, true
}

// InOrder returns jobs in the order in which they are placed.
func InOrder(jobs []*Job) []*Job {
	sorted := slices.Clone(jobs)
	slices.SortFunc(sorted, func(a, b *Job) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created),
			cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name),
		)
	})
	return sorted
}

// Node is a node, and what of it is free.
type Node struct {
	// Object is the node.
	Object *corev1.Node
	// Free is what no other pod has, by the axis of the snapshot.
	Free []int64
	// Leaving is what the jobs' own pods still have beyond what their jobs were
	// placed here with: nothing new is placed there until they are gone. nil is none.
	Leaving []int64
	// Closed says that it takes no further pods, as it is cordoned or not ready:
	// what is there stays.
	Closed bool
}
