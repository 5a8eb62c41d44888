// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Policy places jobs on nodes.
type Policy interface {
	// Allocate places one job on what is free of the nodes, when it is submitted.
	Allocate(job *Job, nodes []*Node) Placement
	// Optimize places all jobs, given what is free of the nodes without them and
	// where they were placed before. A job that is not in the answer stays as it is.
	Optimize(jobs []*Job, nodes []*Node, previous map[types.NamespacedName][]string) map[types.NamespacedName]Placement
}

// Placement is where a job is placed, or why it is not.
type Placement struct {
	// Nodes are the names of the nodes by rank; empty where the job is not placed.
	Nodes []string
	// Reason says why in one word, one of the reasons below.
	Reason string
	// Message says it to a person.
	Message string
}

// The reasons of placements.
const (
	// ReasonPlaced is that all wanted replicas have a node.
	ReasonPlaced = "Placed"
	// ReasonShrunk is that fewer replicas than are wanted have a node, though no
	// fewer than must be.
	ReasonShrunk = "Shrunk"
	// ReasonNoRoom is that no nodes hold the job now.
	ReasonNoRoom = "NoRoom"
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

// elastic returns how many replicas of the elastic task make a job of that
// size, false where none do.
func (j *Job) elastic(size int) (int32, bool) {
	rest := j.size(0)
	if j.Elastic < 0 {
		return 0, int32(size) == rest
	}
	elastic := int32(size) - rest
	return elastic, elastic >= j.Min && elastic <= j.Wanted
}

// inOrder returns jobs in the order in which they are placed.
func inOrder(jobs []*Job) []*Job {
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
	// Closed says that it takes no further pods, as it is cordoned or not ready:
	// what is there stays.
	Closed bool
}
