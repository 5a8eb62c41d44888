// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fit is the policy that places each job on the fewest nodes that hold it, and
// leaves it there. A job that finds no room for all the replicas it wants gets
// as many as there is room for, if these are enough; it grows again when there
// is room and no other job waits.
type Fit struct{}

var _ Policy = Fit{}

// Allocate implements Policy.
func (Fit) Allocate(job *Job, nodes []*Node) Placement {
	return newBoard(nodes).place(job)
}

// Optimize implements Policy. Jobs that are where they can stay go first, in
// spite of others' priorities: moving one costs it a restart.
func (Fit) Optimize(jobs []*Job, nodes []*Node, previous map[types.NamespacedName][]string) map[types.NamespacedName]Placement {
	b := newBoard(nodes)
	placements := make(map[types.NamespacedName]Placement, len(jobs))
	var waiting, shrunk []*Job
	for _, job := range inOrder(jobs) {
		kept, stays := b.keep(job, previous[job.Name])
		switch {
		case !stays:
			waiting = append(waiting, job)
			continue
		case kept.Reason == ReasonShrunk:
			shrunk = append(shrunk, job)
		}
		placements[job.Name] = kept
	}
	waits := false
	for _, job := range waiting {
		placed := b.place(job)
		placements[job.Name] = placed
		waits = waits || len(placed.Nodes) == 0
	}
	if waits {
		return placements
	}
	for _, job := range shrunk {
		if grown, grows := b.grow(job, placements[job.Name].Nodes); grows {
			placements[job.Name] = grown
		}
	}
	return placements
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

// keep takes again what a job had, if it still may have it.
func (b *board) keep(job *Job, nodes []string) (Placement, bool) {
	elastic, fits := job.elastic(len(nodes))
	if !fits || len(nodes) == 0 {
		return Placement{}, false
	}
	rank := 0
	for task := range job.Tasks {
		for range job.replicas(task, elastic) {
			if !b.seat(job.Tasks[task].Pod, nodes[rank]) {
				b.release(job, elastic, nodes[:rank])
				return Placement{}, false
			}
			rank++
		}
	}
	return placed(job, elastic, nodes), true
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

// release gives back the room of a job's first ranks.
func (b *board) release(job *Job, elastic int32, nodes []string) {
	rank := 0
	for task := range job.Tasks {
		for range job.replicas(task, elastic) {
			if rank == len(nodes) {
				return
			}
			take(b.free[b.byName[nodes[rank]]], job.Tasks[task].Pod.amounts, -1)
			rank++
		}
	}
}

// grow places a job anew, if it gets more replicas so.
func (b *board) grow(job *Job, nodes []string) (Placement, bool) {
	elastic, _ := job.elastic(len(nodes))
	b.release(job, elastic, nodes)
	grown := b.place(job)
	if len(grown.Nodes) > len(nodes) {
		return grown, true
	}
	if after, fits := job.elastic(len(grown.Nodes)); fits {
		b.release(job, after, grown.Nodes)
	}
	b.keep(job, nodes)
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
	return Placement{Reason: ReasonNoRoom, Message: b.explain(job, candidates)}
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

// packing is a job while it is placed.
type packing struct {
	board      *board
	job        *Job
	candidates [][]bool
	// order are the tasks, those of the biggest replicas first.
	order []int
	// rest are the replicas of each task that have no node yet, left all of them.
	rest []int32
	left int32
	// nodes are the chosen nodes, and on each how many replicas of each task.
	nodes  []int
	counts [][]int32
	used   map[int]bool
	// amounts and trial are room to reckon in.
	amounts []int64
	trial   []int32
}

func newPacking(b *board, job *Job, elastic int32, candidates [][]bool) *packing {
	p := &packing{
		board: b, job: job, candidates: candidates, used: map[int]bool{}, left: job.size(elastic), trial: make([]int32, len(job.Tasks)),
	}
	for task := range job.Tasks {
		p.order = append(p.order, task)
		p.rest = append(p.rest, job.replicas(task, elastic))
	}
	slices.SortStableFunc(p.order, func(i, j int) int {
		return slices.Compare(job.Tasks[j].Pod.amounts, job.Tasks[i].Pod.amounts)
	})
	if len(b.free) > 0 {
		p.amounts = make([]int64, len(b.free[0]))
	}
	return p
}

// next takes the next node, false where none holds anything of the rest.
func (p *packing) next() bool {
	best, bestCounts, most, slack := -1, make([]int32, len(p.rest)), int32(0), int64(0)
	for at := range p.board.nodes {
		if p.used[at] {
			continue
		}
		total, left := p.fill(at)
		if total > most || total == most && total > 0 && left < slack {
			best, most, slack = at, total, left
			copy(bestCounts, p.trial)
		}
	}
	if best < 0 {
		return false
	}
	p.used[best] = true
	p.nodes, p.counts = append(p.nodes, best), append(p.counts, bestCounts)
	for task, count := range bestCounts {
		p.rest[task] -= count
		p.left -= count
		take(p.board.free[best], p.job.Tasks[task].Pod.amounts, count)
	}
	return true
}

// fill tries how many replicas of each task of the rest a node holds. It returns
// how many these are together, and how much the node is left with.
func (p *packing) fill(at int) (total int32, slack int64) {
	copy(p.amounts, p.board.free[at])
	clear(p.trial)
	for _, task := range p.order {
		if p.rest[task] == 0 || !p.candidates[at][task] {
			continue
		}
		pod := p.job.Tasks[task].Pod
		p.trial[task] = pod.room(p.amounts, p.rest[task])
		take(p.amounts, pod.amounts, p.trial[task])
		total += p.trial[task]
	}
	return total, p.slack(at)
}

// slack returns how much of a node is left, in thousandths of what was free of
// the resources that the job asks for.
func (p *packing) slack(at int) int64 {
	var slack int64
	for i, left := range p.amounts {
		if free := p.board.free[at][i]; free > left && free > 0 {
			slack += left * 1000 / free
		}
	}
	return slack
}

func (p *packing) undo() {
	for i, at := range p.nodes {
		for task, count := range p.counts[i] {
			take(p.board.free[at], p.job.Tasks[task].Pod.amounts, -count)
		}
	}
}

// byRank returns the node of each rank.
func (p *packing) byRank() []string {
	var nodes []string
	for task := range p.job.Tasks {
		for i, at := range p.nodes {
			for range p.counts[i][task] {
				nodes = append(nodes, p.board.nodes[at].Name)
			}
		}
	}
	return nodes
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
	return Placement{Nodes: nodes, Reason: ReasonShrunk, Message: fmt.Sprintf(
		"%s: there is room for %d replicas of task %s, %d are wanted", message, elastic, job.Tasks[job.Elastic].Name, job.Wanted)}
}

// explain says why a job has no room: for each task what the nodes lack.
func (b *board) explain(job *Job, candidates [][]bool) string {
	var tasks []string
	for task := range job.Tasks {
		least := job.replicas(task, job.Min)
		if least > 0 {
			tasks = append(tasks, fmt.Sprintf("task %s wants %d: %s", job.Tasks[task].Name, least, b.lacking(job.Tasks[task].Pod, task, candidates)))
		}
	}
	return fmt.Sprintf("no room on %d nodes; %s", len(b.nodes), strings.Join(tasks, "; "))
}

func (b *board) lacking(pod *Requirements, task int, candidates [][]bool) string {
	if pod.impossible != "" {
		return fmt.Sprintf("no node has %s", pod.impossible)
	}
	repelled, short := 0, map[corev1.ResourceName]int{}
	var room int32
	for at := range b.nodes {
		if !candidates[at][task] {
			repelled++
			continue
		}
		room += pod.room(b.free[at], 1<<20)
		for i, name := range pod.names {
			if b.free[at][i] < pod.amounts[i] {
				short[name]++
			}
		}
	}
	parts := []string{fmt.Sprintf("there is room for %d by itself", room)}
	if repelled > 0 {
		parts = append(parts, fmt.Sprintf("%d nodes are cordoned, not ready, tainted or of other labels", repelled))
	}
	for _, name := range sortedNames(short) {
		parts = append(parts, fmt.Sprintf("%d nodes lack %s", short[name], name))
	}
	return strings.Join(parts, ", ")
}

func sortedNames(counts map[corev1.ResourceName]int) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	return names
}
