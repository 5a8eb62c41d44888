// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Board is the nodes while jobs are placed on them.
type Board struct {
	nodes  []*corev1.Node
	closed []bool
	free   [][]int64
	byName map[string]int
}

func NewBoard(nodes []*Node) *Board {
	b := &Board{byName: make(map[string]int, len(nodes))}
	for i, node := range nodes {
		b.nodes, b.closed = append(b.nodes, node.Object), append(b.closed, node.Closed)
		b.free = append(b.free, slices.Clone(node.Free))
		b.byName[node.Object.Name] = i
	}
	return b
}

// Clone returns a copy of the board. What is taken on one of them is not taken on the other.
func (b *Board) Clone() *Board {
	clone := &Board{nodes: b.nodes, closed: slices.Clone(b.closed), free: make([][]int64, len(b.free)), byName: b.byName}
	for at, free := range b.free {
		clone.free[at] = slices.Clone(free)
	}
	return clone
}

// Leave takes what pods have that are on their way out.
func (b *Board) Leave(nodes []*Node) {
	for at, node := range nodes {
		if node.Leaving != nil {
			take(b.free[at], node.Leaving, 1)
		}
	}
}

// Stay is a job that stays where it was.
type Stay struct {
	Job     *Job
	elastic int32
	// nodes are by rank, "" for what has none yet; seated says of which the room
	// was taken.
	nodes  []string
	seated []bool
	// ended are the ranks that need no room.
	ended map[int]bool
}

func (s *Stay) IsComplete() bool {
	return !slices.Contains(s.nodes, "")
}

func (s *Stay) Placement() Placement {
	return placed(s.Job, s.elastic, s.nodes)
}

// Keep takes again what a job had, if it still may have it; nil if not. Of what
// has ended nothing is taken yet.
func (b *Board) Keep(job *Job, previous []string) *Stay {
	nodes, elastic, fits := job.resized(previous)
	if !fits {
		return nil
	}
	kept := &Stay{Job: job, elastic: elastic, nodes: nodes, seated: make([]bool, len(nodes))}
	if len(nodes) == len(previous) {
		// Another size restarts all.
		kept.ended = job.Ended
	}
	for rank, pod := range job.Ranks(elastic) {
		if nodes[rank] == "" || kept.ended[rank] {
			continue
		}
		if kept.seated[rank] = b.seat(pod, nodes[rank]); !kept.seated[rank] {
			b.Release(kept)
			return nil
		}
	}
	return kept
}

// KeepEnded takes the room of the ranks that have ended, where nobody has it.
func (b *Board) KeepEnded(kept *Stay) {
	for rank, pod := range kept.Job.Ranks(kept.elastic) {
		if kept.ended[rank] && rank < len(kept.nodes) && kept.nodes[rank] != "" {
			kept.seated[rank] = b.seat(pod, kept.nodes[rank])
		}
	}
}

// Hold takes what a job has but for what has ended, whether there is any room or not.
// Nodes that are not there have none.
func (b *Board) Hold(job *Job, nodes []string) *Stay {
	elastic, _ := job.ElasticOf(len(nodes))
	held := &Stay{Job: job, elastic: max(elastic, 0), nodes: nodes, seated: make([]bool, len(nodes)), ended: job.Ended}
	for rank := range nodes {
		_, there := b.byName[nodes[rank]]
		held.seated[rank] = there && !held.ended[rank]
	}
	b.shift(held, 1)
	return held
}

// Complete gives the ranks that have no node one each, of those that the job is
// on if they have room. It returns false, and takes nothing of the job, where
// there is no room.
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
		node, found := b.nodeFor(pod, used)
		if !found && (!kept.ended[rank] || len(b.nodes) == 0) {
			b.Release(kept)
			return false
		}
		if !found {
			// What has ended needs no room, and any name will do.
			node = b.nodes[0].Name
		}
		kept.nodes[rank], used[node] = node, true
		kept.seated[rank] = found && b.seat(pod, node)
	}
	return true
}

// PlaceOrStay places a job again that must be bigger than where it is. Where there
// is no room for that it goes on as it is: nobody is better off if it stops.
func (b *Board) PlaceOrStay(job *Job, previous []string) Placement {
	found := b.Place(job)
	if len(found.Nodes) > 0 || slices.Contains(previous, "") {
		return found
	}
	left := b.Hold(job, previous)
	b.KeepEnded(left)
	return left.Placement()
}

// nodeFor returns a node that takes one more pod, of the used ones if one does.
func (b *Board) nodeFor(pod *Requirements, used map[string]bool) (string, bool) {
	name, found := "", false
	for at, node := range b.nodes {
		if (found && !used[node.Name]) || b.closed[at] || pod.room(b.free[at], 1) == 0 || !pod.accepts(node) {
			continue
		}
		name, found = node.Name, true
		if used[name] {
			break
		}
	}
	return name, found
}

// Release gives back what was taken for a job that was to stay.
func (b *Board) Release(kept *Stay) { b.shift(kept, -1) }

// shift takes the room of the ranks that are seated so many times.
func (b *Board) shift(kept *Stay, times int32) {
	for rank, pod := range kept.Job.Ranks(kept.elastic) {
		if rank < len(kept.seated) && kept.seated[rank] {
			take(b.free[b.byName[kept.nodes[rank]]], pod.amounts, times)
		}
	}
}

// seat takes the room of one replica on a node of that name, if it has it.
func (b *Board) seat(pod *Requirements, node string) bool {
	at, there := b.byName[node]
	if !there || pod.room(b.free[at], 1) == 0 || !pod.MayStay(b.nodes[at]) {
		return false
	}
	take(b.free[at], pod.amounts, 1)
	return true
}

// charge takes the room of all ranks of a job, whether there is any or not; -1
// times gives it back. Nodes that are not there have none.
func (b *Board) charge(job *Job, nodes []string, times int32) {
	elastic, _ := job.ElasticOf(len(nodes))
	for rank, pod := range job.Ranks(max(elastic, 0)) {
		if rank >= len(nodes) {
			return
		}
		if at, there := b.byName[nodes[rank]]; there {
			take(b.free[at], pod.amounts, times)
		}
	}
}

// Grow places a job again, if it gets more replicas so.
func (b *Board) Grow(job *Job, nodes []string) (Placement, bool) {
	b.charge(job, nodes, -1)
	grown := b.Place(job)
	if len(grown.Nodes) > len(nodes) {
		return grown, true
	}
	b.charge(job, grown.Nodes, -1)
	b.charge(job, nodes, 1)
	return Placement{}, false
}

// Place takes room for a job of as many replicas as there is room for.
func (b *Board) Place(job *Job) Placement {
	candidates := b.candidates(job)
	most, least := job.Wanted, job.Min
	if job.Elastic < 0 {
		most, least = 0, 0
	} else {
		most = min(most, b.roomFor(job, candidates, most))
	}
	for elastic := most; elastic >= least; elastic-- {
		if nodes, fits := b.pack(job, elastic, candidates); fits {
			return placed(job, elastic, nodes)
		}
	}
	return Placement{Reason: ReasonInsufficientCapacity, Message: b.explain(job, candidates)}
}

// PlaceCount places a job with exactly that many replicas of its elastic task, and takes their
// capacity. It returns false, and takes nothing, if the nodes cannot hold them. A job without an
// elastic task has a count of 0.
func (b *Board) PlaceCount(job *Job, elastic int32) ([]string, bool) {
	return b.pack(job, elastic, b.candidates(job))
}

// Return gives back the capacity of all ranks of a job that is placed on those nodes.
func (b *Board) Return(job *Job, nodes []string) { b.charge(job, nodes, -1) }

// candidates returns for each node whether it takes replicas of each task.
func (b *Board) candidates(job *Job) [][]bool {
	candidates := make([][]bool, len(b.nodes))
	for at, node := range b.nodes {
		candidates[at] = make([]bool, len(job.Tasks))
		for task := range job.Tasks {
			candidates[at][task] = !b.closed[at] && job.Tasks[task].Pod.accepts(node)
		}
	}
	return candidates
}

// roomFor bounds how many replicas of the elastic task all nodes hold.
func (b *Board) roomFor(job *Job, candidates [][]bool, most int32) int32 {
	var room int32
	for at := range b.nodes {
		if candidates[at][job.Elastic] {
			room += job.Tasks[job.Elastic].Pod.room(b.free[at], most)
		}
		if room >= most {
			return most
		}
	}
	return room
}

// pack takes room for all replicas of a job on few nodes: again and again the
// node that holds the most of what is left, and of these the one that is left
// the fullest. Where one node holds the rest that is the tightest of them.
func (b *Board) pack(job *Job, elastic int32, candidates [][]bool) ([]string, bool) {
	p := newPacking(b, job, elastic, candidates)
	for p.left > 0 {
		if !p.next() {
			p.undo()
			return nil, false
		}
	}
	return p.byRank(), true
}

// placed says where a job is placed.
func placed(job *Job, elastic int32, nodes []string) Placement {
	distinct := map[string]bool{}
	for _, node := range nodes {
		distinct[node] = true
	}
	message := fmt.Sprintf("%d replicas on %d nodes", len(nodes), len(distinct))
	if job.Elastic < 0 || elastic >= job.Wanted {
		return Placement{Nodes: nodes, Reason: ReasonPlaced, Message: message}
	}
	return Placement{Nodes: nodes, Reason: ReasonPartiallyPlaced, Message: fmt.Sprintf(
		"%s: there is capacity for %d replicas of task %s, %d are desired", message, elastic, job.Tasks[job.Elastic].Name, job.Wanted)}
}

// Overcommitted names a node with less than nothing free; "" for none.
func (b *Board) Overcommitted() string {
	for at, left := range b.free {
		if slices.ContainsFunc(left, func(amount int64) bool { return amount < 0 }) {
			return fmt.Sprintf("node %s is left with %v", b.nodes[at].Name, left)
		}
	}
	return ""
}
