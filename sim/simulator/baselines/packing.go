// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"cmp"
	"slices"

	"opendilab.org/di-orchestrator/sim/simulator"
)

// packing places counts of replicas on equal nodes: powers of two within a node, and whole nodes.
// These always fit, if smaller jobs move.
type packing struct {
	gpus     int
	jobs     []*simulator.Job
	counts   []int
	previous map[string][]int
	placed   map[string][]int
	room     []int
	waiting  []int
}

// pack returns placements of the counts. A job whose count is unchanged moves only to make room.
func pack(jobs []*simulator.Job, counts []int, cluster simulator.Cluster, previous map[string][]int) map[string][]int {
	p := &packing{gpus: cluster.GPUs, jobs: jobs, counts: counts, previous: previous, placed: map[string][]int{}}
	for i, job := range jobs {
		switch before := previous[job.Name]; {
		case counts[i] == 0:
		case len(before) == counts[i]:
			p.placed[job.Name] = before
		default:
			p.waiting = append(p.waiting, i)
		}
	}
	p.room = free(cluster.Nodes, cluster.GPUs, p.placed)
	for len(p.waiting) > 0 {
		slices.SortStableFunc(p.waiting, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
		i := p.waiting[0]
		p.waiting = p.waiting[1:]
		if counts[i] >= p.gpus {
			p.placeWhole(i)
		} else {
			p.placeWithin(i)
		}
	}
	return p.placed
}

// put places a job with the same number of replicas on each of the nodes.
func (p *packing) put(i, each int, nodes []int) {
	var where []int
	for _, node := range nodes {
		where = append(where, slices.Repeat([]int{node}, each)...)
		p.room[node] -= each
	}
	p.placed[p.jobs[i].Name] = where
}

// evict takes the nodes of jobs, which are placed again.
func (p *packing) evict(jobs []int) {
	for _, i := range jobs {
		for _, node := range p.placed[p.jobs[i].Name] {
			p.room[node]++
		}
		delete(p.placed, p.jobs[i].Name)
		p.waiting = append(p.waiting, i)
	}
}

// on returns the jobs of a node.
func (p *packing) on(node int) []int {
	var all []int
	for i, job := range p.jobs {
		if slices.Contains(p.placed[job.Name], node) {
			all = append(all, i)
		}
	}
	return all
}

// replicasOf sums the replicas of jobs.
func (p *packing) replicasOf(jobs []int) int {
	sum := 0
	for _, i := range jobs {
		sum += p.counts[i]
	}
	return sum
}

// placeWhole places a job on whole nodes: its own, then empty ones, then those whose small jobs
// are the fewest replicas.
func (p *packing) placeWhole(i int) {
	need, before := p.counts[i]/p.gpus, p.previous[p.jobs[i].Name]
	var nodes []int
	take := func(node int) {
		if p.room[node] == p.gpus && !slices.Contains(nodes, node) && len(nodes) < need {
			nodes = append(nodes, node)
		}
	}
	for _, node := range before {
		take(node)
	}
	for node := range p.room {
		take(node)
	}
	for len(nodes) < need {
		best, least := -1, 0
		for node := range p.room {
			others := p.on(node)
			isWhole := slices.ContainsFunc(others, func(other int) bool { return p.counts[other] >= p.gpus })
			if len(others) == 0 || isWhole || slices.Contains(nodes, node) {
				continue
			}
			if sum := p.replicasOf(others); best < 0 || sum < least {
				best, least = node, sum
			}
		}
		if best < 0 {
			return
		}
		p.evict(p.on(best))
		nodes = append(nodes, best)
	}
	slices.Sort(nodes)
	p.put(i, p.gpus, nodes)
}

// placeWithin places a job on the fullest node that holds it, its own among equals. If none does,
// smaller jobs move.
func (p *packing) placeWithin(i int) {
	count, before := p.counts[i], p.previous[p.jobs[i].Name]
	best := -1
	for node, room := range p.room {
		if room < count {
			continue
		}
		isOwn := best >= 0 && slices.Contains(before, node) && !slices.Contains(before, best)
		if best < 0 || room < p.room[best] || room == p.room[best] && isOwn {
			best = node
		}
	}
	if best < 0 {
		var victims []int
		if best, victims = p.cheapest(count); best < 0 {
			return
		}
		p.evict(victims)
	}
	p.put(i, count, []int{best})
}

// cheapest returns the node, and its jobs that move, where the fewest replicas move for a count.
func (p *packing) cheapest(count int) (best int, victims []int) {
	best = -1
	for node, room := range p.room {
		if room == 0 {
			continue
		}
		others := p.on(node)
		slices.SortStableFunc(others, func(a, b int) int { return cmp.Compare(p.counts[a], p.counts[b]) })
		var moved []int
		for _, other := range others {
			if room+p.replicasOf(moved) < count && p.counts[other] < count {
				moved = append(moved, other)
			}
		}
		isEnough := room+p.replicasOf(moved) >= count
		if isEnough && (best < 0 || p.replicasOf(moved) < p.replicasOf(victims)) {
			best, victims = node, moved
		}
	}
	return best, victims
}
