// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// Stay is a job that keeps its nodes, at least some of them.
type Stay struct {
	Job     *Job
	elastic int32
	// nodes are the nodes by rank; "" for a rank without a node. seated are the ranks whose capacity
	// is taken.
	nodes  []string
	seated []bool
	// ended are the ranks that need no capacity.
	ended map[int]bool
}

// IsComplete reports whether every rank has a node.
func (s *Stay) IsComplete() bool {
	return !slices.Contains(s.nodes, "")
}

// Placement returns the placement of a complete job.
func (s *Stay) Placement() Placement {
	return placed(s.Job, s.elastic, s.nodes)
}

// Keep takes the capacity of a job's previous placement again; nil if the job cannot keep it. A rank
// whose pod runs needs no free capacity before Settle: Kubernetes leaves pods alone on a node whose allocatable
// resources shrink, for example while a device plugin restarts. Ranks that have ended take no capacity
// yet.
func (b *Board) Keep(job *Job, previous []string) *Stay {
	nodes, elastic, fits := job.resized(previous)
	if !fits {
		return nil
	}
	kept := &Stay{Job: job, elastic: elastic, nodes: nodes, seated: make([]bool, len(nodes))}
	var running map[int]string
	if len(nodes) == len(previous) || job.ResizesLive {
		// Else another size restarts all replicas.
		kept.ended, running = job.Ended, job.Running
	}
	// A rank that waits must not take what one that runs has.
	for _, runs := range []bool{true, false} {
		for rank, pod := range job.Ranks(elastic) {
			if nodes[rank] == "" || kept.ended[rank] || (running[rank] == nodes[rank]) != runs {
				continue
			}
			if kept.seated[rank] = b.seat(job, pod, nodes[rank], runs); !kept.seated[rank] {
				b.Release(kept)
				return nil
			}
		}
	}
	return kept
}

// KeepSome takes the capacity of the ranks that can keep their nodes. The other ranks have no node: the
// job is incomplete. Every rank needs free capacity, because another placement restarts all of them. It
// returns nil if no rank can stay.
func (b *Board) KeepSome(job *Job, previous []string) *Stay {
	nodes, elastic, fits := job.resized(previous)
	if !fits {
		return nil
	}
	kept := &Stay{Job: job, elastic: elastic, nodes: slices.Clone(nodes), seated: make([]bool, len(nodes))}
	for rank, pod := range job.Ranks(elastic) {
		if kept.seated[rank] = b.seat(job, pod, nodes[rank], false); !kept.seated[rank] {
			kept.nodes[rank] = ""
		}
	}
	if !slices.Contains(kept.seated, true) {
		return nil
	}
	return kept
}

// KeepEnded takes the capacity of the ranks that have ended, where it is still free.
func (b *Board) KeepEnded(kept *Stay) {
	for rank, pod := range kept.Job.Ranks(kept.elastic) {
		if kept.ended[rank] && rank < len(kept.nodes) && kept.nodes[rank] != "" {
			kept.seated[rank] = b.seat(kept.Job, pod, kept.nodes[rank], false)
		}
	}
}

// Hold takes the capacity of a job's placement except that of ended ranks, even if there is none. It
// skips nodes that do not exist.
func (b *Board) Hold(job *Job, nodes []string) *Stay {
	elastic, _ := job.ElasticOf(len(nodes))
	held := &Stay{Job: job, elastic: max(elastic, 0), nodes: nodes, seated: make([]bool, len(nodes)), ended: job.Ended}
	for rank := range nodes {
		_, exists := b.byName[nodes[rank]]
		held.seated[rank] = exists && !held.ended[rank]
	}
	b.shift(held, 1)
	return held
}

// Complete gives a node to each rank without one, if possible a node that the job already has. It
// returns false, and releases the job, if there is no capacity.
func (b *Board) Complete(kept *Stay) bool {
	used := map[string]bool{}
	for _, node := range kept.nodes {
		used[node] = true
	}
	kept.nodes = slices.Clone(kept.nodes)
	for rank, pod := range kept.Job.Ranks(kept.elastic) {
		if kept.nodes[rank] != "" {
			continue
		}
		node, found := b.nodeFor(kept.Job, pod, used)
		if !found && (!kept.ended[rank] || len(b.nodes) == 0) {
			b.Release(kept)
			return false
		}
		if !found {
			// An ended rank needs no capacity, so any node will do.
			node = b.nodes[0].Name
		}
		kept.nodes[rank], used[node] = node, true
		kept.seated[rank] = found && b.seat(kept.Job, pod, node, false)
	}
	return true
}

// Extend adds replicas behind those of a complete job that is resized live, up to its desired size: on nodes that the job
// already has, if possible. The other replicas keep their nodes.
func (b *Board) Extend(kept *Stay) *Stay {
	extended := *kept
	extended.nodes, extended.seated = slices.Clone(kept.nodes), slices.Clone(kept.seated)
	used := map[string]bool{}
	for _, node := range kept.nodes {
		used[node] = true
	}
	pod := kept.Job.Tasks[kept.Job.Elastic].Pod
	for extended.elastic < kept.Job.Wanted {
		node, found := b.nodeFor(kept.Job, pod, used)
		if !found || !b.seat(kept.Job, pod, node, false) {
			break
		}
		used[node] = true
		extended.nodes, extended.seated, extended.elastic = append(extended.nodes, node), append(extended.seated, true), extended.elastic+1
	}
	return &extended
}

// Seated returns a job that was placed on the board, with all its capacity.
func (b *Board) Seated(job *Job, nodes []string) *Stay {
	elastic, _ := job.ElasticOf(len(nodes))
	seated := &Stay{Job: job, elastic: max(elastic, 0), nodes: nodes, seated: make([]bool, len(nodes))}
	for rank := range nodes {
		_, seated.seated[rank] = b.byName[nodes[rank]]
	}
	return seated
}

// Shrink drops the last replicas of a job's elastic task, so that its least size remains. It returns
// nil, and changes nothing, if the job has no larger size, or if a rank has ended: that rank would
// start again. It also returns nil if the remaining ranks have no capacity to start again.
func (b *Board) Shrink(kept *Stay) *Stay {
	job := *kept.Job
	if job.Elastic < 0 || kept.elastic <= job.Min || len(job.Ended) > 0 {
		return nil
	}
	job.Wanted, job.Running = job.Min, nil
	b.Release(kept)
	shrunk := b.Keep(&job, kept.nodes)
	if shrunk == nil {
		b.Retake(kept)
		return nil
	}
	shrunk.Job = kept.Job
	return shrunk
}

// Release gives back the capacity of a job.
func (b *Board) Release(kept *Stay) { b.shift(kept, -1) }

// Retake takes the capacity of a job that was released.
func (b *Board) Retake(kept *Stay) { b.shift(kept, 1) }

// shift takes the capacity of the seated ranks a number of times.
func (b *Board) shift(kept *Stay, times int32) {
	for rank, pod := range kept.Job.Ranks(kept.elastic) {
		if rank < len(kept.seated) && kept.seated[rank] {
			b.change(b.byName[kept.nodes[rank]], pod, times)
		}
	}
}

// seat takes the capacity of one replica on a node, if it has it, or if the replica runs there and may return.
func (b *Board) seat(job *Job, pod *Requirements, node string, runs bool) bool {
	at, exists := b.byName[node]
	switch {
	case !exists || !pod.MayStay(b.nodes[at]):
		return false
	case runs && !b.mayReturn(at, pod):
		return false
	case !runs && (pod.room(b.free[at], 1) == 0 || job.Excluded[node]):
		return false
	}
	take(b.free[at], pod.amounts, 1)
	return true
}
