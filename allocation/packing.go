// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// packing is a job while it is placed.
type packing struct {
	board      *Board
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

func newPacking(b *Board, job *Job, elastic int32, candidates [][]bool) *packing {
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
