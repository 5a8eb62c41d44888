// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// packing places the replicas of one job.
type packing struct {
	board      *Board
	job        *Job
	candidates [][]bool
	// order are the tasks in the order in which they fill a node.
	order []int
	// rest are the replicas of each task without a node, left the sum of them.
	rest []int32
	left int32
	// open are the nodes that may hold some of the rest.
	open []int
	// nodes are the chosen nodes, and counts the replicas of each task on each of them.
	nodes  []int
	counts [][]int32
	// amounts and trial are buffers.
	amounts []int64
	trial   []int32
}

// newPacking returns a packing on some of the nodes, by their places; on all of them without any.
func newPacking(b *Board, job *Job, elastic int32, candidates [][]bool, order, places []int) *packing {
	p := &packing{board: b, job: job, candidates: candidates, order: order, left: job.size(elastic), trial: make([]int32, len(job.Tasks))}
	for task := range job.Tasks {
		p.rest = append(p.rest, job.replicas(task, elastic))
	}
	if p.open = slices.Clone(places); places == nil {
		p.open = make([]int, len(b.nodes))
		for at := range p.open {
			p.open[at] = at
		}
	}
	if len(b.free) > 0 {
		p.amounts = make([]int64, len(b.free[0]))
	}
	return p
}

// all places all replicas. It returns false, and takes nothing, if the nodes cannot hold them.
func (p *packing) all() ([]string, bool) {
	for p.left > 0 {
		if !p.next() {
			p.undo()
			return nil, false
		}
	}
	return p.byRank(), true
}

// next chooses the node that holds most of the rest, and among those the one that is then the fullest.
// If one node holds the whole rest, it is the tightest. next returns false if no node holds any.
func (p *packing) next() bool {
	best, bestCounts, most, slack := -1, make([]int32, len(p.rest)), int32(0), int64(0)
	open := p.open[:0]
	for _, at := range p.open {
		total, left := p.fill(at)
		if total > 0 {
			open = append(open, at)
		}
		if total > most || total == most && total > 0 && left < slack {
			best, most, slack = at, total, left
			copy(bestCounts, p.trial)
		}
	}
	if best < 0 {
		return false
	}
	p.open = slices.DeleteFunc(open, func(at int) bool { return at == best })
	p.nodes, p.counts = append(p.nodes, best), append(p.counts, bestCounts)
	for task, count := range bestCounts {
		p.rest[task] -= count
		p.left -= count
		take(p.board.free[best], p.job.Tasks[task].Pod.amounts, count)
	}
	return true
}

// fill computes how many replicas of each task of the rest a node holds. It returns the sum, and the
// slack of the node.
func (p *packing) fill(at int) (total int32, slack int64) {
	copy(p.amounts, p.board.free[at])
	clear(p.trial)
	for _, task := range p.order {
		if p.rest[task] == 0 || !p.candidates[task][at] {
			continue
		}
		pod := p.job.Tasks[task].Pod
		p.trial[task] = pod.room(p.amounts, p.rest[task])
		take(p.amounts, pod.amounts, p.trial[task])
		total += p.trial[task]
	}
	if total == 0 {
		return 0, 0
	}
	return total, p.slack(at)
}

// slack returns how much of a node is left, in thousandths of what was free of the requested resources.
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
