// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fit is the policy that places each job on the fewest nodes that hold it, and
// leaves it there, also where it must have more replicas by now than there is room
// for. A job that finds no room for all the replicas it wants gets
// as many as there is room for, if these are enough; it grows again when there
// is room and no job waits that the nodes could hold.
type Fit struct {
	// GrowAfter is for how long a job is left as it is before it grows: that
	// restarts it, and room often comes bit by bit.
	GrowAfter time.Duration
}

var _ Policy = Fit{}

// Allocate implements Policy.
func (Fit) Allocate(job *Job, nodes []*Node) Placement {
	b := newBoard(nodes)
	b.leave(nodes)
	return b.place(job)
}

// Optimize implements Policy. Jobs that are where they can stay go first, in
// spite of others' priorities: moving one costs it a restart.
func (f Fit) Optimize(jobs []*Job, nodes []*Node, previous map[types.NamespacedName][]string) map[types.NamespacedName]Placement {
	b := newBoard(nodes)
	placements := make(map[types.NamespacedName]Placement, len(jobs))
	var waiting []*Job
	var stays, incomplete []*stay
	for _, job := range inOrder(jobs) {
		kept := b.keep(job, previous[job.Name])
		switch {
		case kept == nil:
			waiting = append(waiting, job)
			continue
		case kept.isComplete():
			placements[job.Name] = kept.placement()
		default:
			incomplete = append(incomplete, kept)
		}
		stays = append(stays, kept)
	}
	// What has ended is to drive out nothing that runs.
	for _, kept := range stays {
		b.keepEnded(kept)
	}
	b.leave(nodes)
	for _, kept := range incomplete {
		if b.complete(kept) {
			placements[kept.job.Name] = kept.placement()
		} else {
			placements[kept.job.Name] = b.placeOrLeave(kept.job, previous[kept.job.Name])
		}
	}
	for _, job := range waiting {
		placements[job.Name] = b.place(job)
	}
	if !areAnyWaiting(jobs, nodes, placements) {
		f.growAll(b, jobs, placements)
	}
	return placements
}

// areAnyWaiting reports whether a job has no place, or too small a one, that could
// have one if no other was there. One that the nodes cannot hold at all keeps nobody from growing.
func areAnyWaiting(jobs []*Job, nodes []*Node, placements map[types.NamespacedName]Placement) bool {
	var empty *board
	for _, job := range jobs {
		size := len(placements[job.Name].Nodes)
		if elastic, _ := job.elastic(size); size > 0 && elastic >= job.Min {
			continue
		}
		if empty == nil {
			empty = newBoard(nodes)
		}
		if found := empty.place(job); len(found.Nodes) > 0 {
			return true
		}
	}
	return false
}

// growAll lets the jobs grow that got fewer replicas than they want. What ranks
// have done that have succeeded is not done again for that.
func (f Fit) growAll(b *board, jobs []*Job, placements map[types.NamespacedName]Placement) {
	for _, job := range inOrder(jobs) {
		before := placements[job.Name]
		if before.Reason != ReasonPartiallyPlaced || job.Held < f.GrowAfter || len(job.Ended) > 0 {
			continue
		}
		if grown, grows := b.grow(job, before.Nodes); grows {
			placements[job.Name] = grown
		}
	}
}

// board is the nodes while jobs are placed on them.
type board struct {
	nodes  []*corev1.Node
	closed []bool
	free   [][]int64
	byName map[string]int
}

func newBoard(nodes []*Node) *board {
	b := &board{byName: make(map[string]int, len(nodes))}
	for i, node := range nodes {
		b.nodes, b.closed = append(b.nodes, node.Object), append(b.closed, node.Closed)
		b.free = append(b.free, slices.Clone(node.Free))
		b.byName[node.Object.Name] = i
	}
	return b
}

// leave takes what pods have that are on their way out.
func (b *board) leave(nodes []*Node) {
	for at, node := range nodes {
		if node.Leaving != nil {
			take(b.free[at], node.Leaving, 1)
		}
	}
}

// stay is a job that stays where it was.
type stay struct {
	job     *Job
	elastic int32
	// nodes are by rank, "" for what has none yet; seated says of which the room
	// was taken.
	nodes  []string
	seated []bool
	// ended are the ranks that need no room.
	ended map[int]bool
}

func (s *stay) isComplete() bool {
	return !slices.Contains(s.nodes, "")
}

func (s *stay) placement() Placement {
	return placed(s.job, s.elastic, s.nodes)
}

// keep takes again what a job had, if it still may have it; nil if not. Of what
// has ended nothing is taken yet.
func (b *board) keep(job *Job, previous []string) *stay {
	nodes, elastic, fits := job.resized(previous)
	if !fits {
		return nil
	}
	kept := &stay{job: job, elastic: elastic, nodes: nodes, seated: make([]bool, len(nodes))}
	if len(nodes) == len(previous) {
		// Another size restarts all.
		kept.ended = job.Ended
	}
	for rank, pod := range job.ranks(elastic) {
		if nodes[rank] == "" || kept.ended[rank] {
			continue
		}
		if kept.seated[rank] = b.seat(pod, nodes[rank]); !kept.seated[rank] {
			b.giveUp(kept)
			return nil
		}
	}
	return kept
}

// keepEnded takes the room of the ranks that have ended, where nobody has it.
func (b *board) keepEnded(kept *stay) {
	for rank, pod := range kept.job.ranks(kept.elastic) {
		if kept.ended[rank] && rank < len(kept.nodes) && kept.nodes[rank] != "" {
			kept.seated[rank] = b.seat(pod, kept.nodes[rank])
		}
	}
}

// hold takes what a job has but for what has ended, whether there is any room or not.
// Nodes that are not there have none.
func (b *board) hold(job *Job, nodes []string) *stay {
	elastic, _ := job.elastic(len(nodes))
	held := &stay{job: job, elastic: max(elastic, 0), nodes: nodes, seated: make([]bool, len(nodes)), ended: job.Ended}
	for rank := range nodes {
		_, there := b.byName[nodes[rank]]
		held.seated[rank] = there && !held.ended[rank]
	}
	b.shift(held, 1)
	return held
}

// complete gives the ranks that have no node one each, of those that the job is
// on if they have room. It returns false, and takes nothing of the job, where
// there is no room.
func (b *board) complete(kept *stay) bool {
	used := map[string]bool{}
	for _, node := range kept.nodes {
		used[node] = true
	}
	kept.nodes = slices.Clone(kept.nodes)
	for rank, pod := range kept.job.ranks(kept.elastic) {
		if kept.nodes[rank] != "" {
			continue
		}
		node, found := b.nodeFor(pod, used)
		if !found && (!kept.ended[rank] || len(b.nodes) == 0) {
			b.giveUp(kept)
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

// placeOrLeave places a job again that must be bigger than where it is. Where there
// is no room for that it goes on as it is: nobody is better off if it stops.
func (b *board) placeOrLeave(job *Job, previous []string) Placement {
	found := b.place(job)
	if len(found.Nodes) > 0 || slices.Contains(previous, "") {
		return found
	}
	left := b.hold(job, previous)
	b.keepEnded(left)
	return left.placement()
}

// nodeFor returns a node that takes one more pod, of the used ones if one does.
func (b *board) nodeFor(pod *Requirements, used map[string]bool) (string, bool) {
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

// giveUp gives back what was taken for a job that was to stay.
func (b *board) giveUp(kept *stay) { b.shift(kept, -1) }

// shift takes the room of the ranks that are seated so many times.
func (b *board) shift(kept *stay, times int32) {
	for rank, pod := range kept.job.ranks(kept.elastic) {
		if rank < len(kept.seated) && kept.seated[rank] {
			take(b.free[b.byName[kept.nodes[rank]]], pod.amounts, times)
		}
	}
}

// seat takes the room of one replica on a node of that name, if it has it.
func (b *board) seat(pod *Requirements, node string) bool {
	at, there := b.byName[node]
	if !there || pod.room(b.free[at], 1) == 0 || !pod.mayStay(b.nodes[at]) {
		return false
	}
	take(b.free[at], pod.amounts, 1)
	return true
}

// charge takes the room of all ranks of a job, whether there is any or not; -1
// times gives it back. Nodes that are not there have none.
func (b *board) charge(job *Job, nodes []string, times int32) {
	elastic, _ := job.elastic(len(nodes))
	for rank, pod := range job.ranks(max(elastic, 0)) {
		if rank >= len(nodes) {
			return
		}
		if at, there := b.byName[nodes[rank]]; there {
			take(b.free[at], pod.amounts, times)
		}
	}
}

// grow places a job again, if it gets more replicas so.
func (b *board) grow(job *Job, nodes []string) (Placement, bool) {
	b.charge(job, nodes, -1)
	grown := b.place(job)
	if len(grown.Nodes) > len(nodes) {
		return grown, true
	}
	b.charge(job, grown.Nodes, -1)
	b.charge(job, nodes, 1)
	return Placement{}, false
}

// place takes room for a job of as many replicas as there is room for.
func (b *board) place(job *Job) Placement {
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

// candidates returns for each node whether it takes replicas of each task.
func (b *board) candidates(job *Job) [][]bool {
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
func (b *board) roomFor(job *Job, candidates [][]bool, most int32) int32 {
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
func (b *board) pack(job *Job, elastic int32, candidates [][]bool) ([]string, bool) {
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
