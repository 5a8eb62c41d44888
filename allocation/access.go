// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import corev1 "k8s.io/api/core/v1"

// Amounts returns what one replica requests, by the axis of the snapshot. The caller must not change it.
func (r *Requirements) Amounts() []int64 { return r.amounts }

// Names returns the names of the requested resources by their place on the axis. The caller must not
// change it.
func (r *Requirements) Names() map[int]corev1.ResourceName { return r.names }

// Key is equal for equal requirements.
func (r *Requirements) Key() string { return r.key }

// NodesKey is equal for requirements that the same nodes accept, apart from capacity.
func (r *Requirements) NodesKey() string { return r.nodesKey }

// Room returns how many replicas the free amounts hold, at most the given number.
func (r *Requirements) Room(free []int64, most int32) int32 { return r.room(free, most) }

// Free returns what is left of a node, by its place in the order of names. The caller must not change it.
func (b *Board) Free(node int) []int64 { return b.free[node] }

// Accepting returns whether each node takes new replicas of a task, apart from capacity. The caller must
// not change it.
func (b *Board) Accepting(job *Job, task int) []bool { return b.acceptingFor(job, job.Tasks[task].Pod) }

// Nodes returns the node of each rank; "" for a rank without one.
func (s *Stay) Nodes() []string { return s.nodes }
