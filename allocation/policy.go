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

	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/allocation/topology"
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
	// Quotas are the quotas of namespaces. Within applies them, so a policy does not have to know them.
	Quotas map[string][]*Quota
	// Tenants are the tenants that share the capacity; nil if all jobs compete alike.
	Tenants *shares.Tenants
	// Groups are the histories of groups of similar jobs, by name. The policy updates them, and the
	// caller persists them.
	Groups map[string]*Group
}

// TenantOf returns the name of a job's tenant.
func (r *Round) TenantOf(job *Job) string { return r.Tenants.Of(job.Name.Namespace) }

// Placement is the placement of a job, or why it has none.
type Placement struct {
	// Nodes are the names of the nodes by rank; empty if the job is not placed.
	Nodes []string
	// Reason is one of the reasons below.
	Reason string
	// Message describes the placement, or what the nodes lack, to a person.
	Message string
	// GivesBack says what the job returns to other tenants that its own had borrowed; empty for nothing.
	GivesBack string
	// Usage is the usage of the job up to the round, for the caller to persist. The zero value
	// keeps the previous one.
	Usage Usage
}

// The reasons of placements. They are reasons of condition Allocated.
const (
	ReasonPlaced               = v2alpha1.ReasonPlaced
	ReasonPartiallyPlaced      = v2alpha1.ReasonPartiallyPlaced
	ReasonInsufficientCapacity = v2alpha1.ReasonInsufficientCapacity
)

// Job is a job to place.
type Job struct {
	// Name is the job's namespace and name.
	Name types.NamespacedName
	// Priority orders jobs: those with the highest priority are placed first.
	Priority int32
	// Created is when the job was submitted. Among jobs of a priority the oldest is placed first.
	Created time.Time
	// Tasks are the tasks in the order of their ranks.
	Tasks []Task
	// Elastic is the index of the elastic task, -1 if there is none.
	Elastic int
	// Min and Wanted bound the replicas of the elastic task.
	Min, Wanted int32
	// Ended are the ranks that have succeeded. They keep their capacity until another job needs it, and
	// the job keeps its placement without it.
	Ended map[int]bool
	// Running are the nodes, by rank, on which pods of the job run.
	Running map[int]string
	// Excluded are nodes that the job must not be placed on, because its pods could not be scheduled
	// there. Running ranks stay.
	Excluded map[string]bool
	// Bound is how many replicas the API server admits, for other reasons than the quotas of the round; nil for any.
	Bound *Bound
	// ResizesLive reports whether replicas continue while others of the elastic task are added behind
	// them or removed. That task is the last one.
	ResizesLive bool
	// Held is how long the job has had its current placement.
	Held time.Duration
	// Waiting is how long the job has been without a placement.
	Waiting time.Duration
	// Group is the name of the group of similar jobs. Jobs of a group share a model and a history.
	Group string
	// Report is what the job reported last; nil if it reports nothing.
	Report *profilings.Report
	// Measured are observations that were reported while the job was placed on nodes of a known span, the newest last.
	Measured []model.Observation
	// ReportedAt is when the report changed last; zero if that is unknown.
	ReportedAt time.Time
	// Totals is how right the totals of jobs of its group have been, and of others of its namespace.
	Totals Totals
	// Usage is what the job has used so far.
	Usage Usage
}

// Task is a number of equal replicas of a job.
type Task struct {
	// Name is its name in the job.
	Name string
	// Replicas is their number. The number of the elastic task is decided.
	Replicas int32
	// Pod is what one replica requests, and which nodes it accepts.
	Pod *Requirements
	// Uses is what one replica uses of each quota of the namespace, nil if the quota does not count it.
	Uses []Amounts
}

// size returns the number of replicas of a job with a number of its elastic task.
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

// Ranks returns the requirements of each rank of a job with a number of replicas of its elastic task.
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

// Restarts reports whether a change of its nodes restarts the replicas of a job: it had some, it gets
// others, and it is not resized live.
func (j *Job) Restarts(before, after []string) bool {
	if len(before) == 0 || len(after) == 0 || slices.Equal(before, after) {
		return false
	}
	kept := min(len(before), len(after))
	return !j.ResizesLive || kept < int(j.size(0)) || len(before) == len(after) || !slices.Equal(before[:kept], after[:kept])
}

// ElasticOf returns how many replicas of the elastic task a job of that size has. It returns false if
// the job cannot have the size.
func (j *Job) ElasticOf(size int) (int32, bool) {
	elastic := int32(size) - j.size(0)
	return elastic, elastic >= 0 && (j.Elastic >= 0 || elastic == 0)
}

// resized clamps a previous placement to the job's range. The last replicas of the elastic task are
// dropped, and added ones have no node yet. It returns false if the job had no placement, or one of a
// size that it cannot have.
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
	slices.SortFunc(sorted, Compare)
	return sorted
}

// Compare orders jobs by descending priority, then by age, then by name.
func Compare(a, b *Job) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created),
		cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name),
	)
}

// Node is a node and its free capacity.
type Node struct {
	// Object is the node.
	Object *corev1.Node
	// Free is what foreign pods leave free, by the axis of the snapshot. It is negative if the
	// allocatable resources of the node have shrunk below what runs there.
	Free []int64
	// Leaving is what the jobs' own pods occupy beyond their placements. It is not free until these
	// pods are gone. nil is nothing.
	Leaving []int64
	// Closed reports that the node takes no further pods, because it is cordoned or not ready. Running
	// pods stay.
	Closed bool
	// Domains are where the node is at each level of the topology, from the widest to the narrowest; nil without a topology.
	// All nodes have as many.
	Domains []topology.Domain
}
