// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// spreadOf returns in how many domains of each level nodes are, the widest level first, and how many nodes they are. The least
// is the best.
func (b *Board) spreadOf(places []int) []int {
	return append(b.tree().Counts(places), len(places))
}

// placesOf returns the places of nodes that exist, each once.
func (b *Board) placesOf(nodes []string) []int {
	places := make([]int, 0, len(nodes))
	for i, node := range nodes {
		if i > 0 && node == nodes[i-1] {
			continue
		}
		if at, exists := b.byName[node]; exists {
			places = append(places, at)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// apart returns how many levels divide a node from the nearest of the used nodes.
func (b *Board) apart(used map[string]bool) func(at int) int {
	tree := b.tree()
	if tree == nil {
		return tree.Apart(nil)
	}
	var places []int
	for node, isUsed := range used {
		if at, exists := b.byName[node]; exists && isUsed {
			places = append(places, at)
		}
	}
	return tree.Apart(places)
}

// gather packs a job of several nodes that was just packed on the fewest domains that hold it, and there on the fewest nodes.
// Whether it fits does not depend on that. It takes the capacity of the nodes that it returns.
func (b *Board) gather(job *Job, elastic int32, nodes []string, candidates [][]bool) []string {
	tree := b.tree()
	if tree == nil {
		return nodes
	}
	places := b.placesOf(nodes)
	if len(places) < 2 {
		return nodes
	}
	b.undo(job, nodes)
	least, crossed, isGathered := b.spreadOf(places), tree.Crossed(places), false
	for crosses, set := range tree.Sets(b.rooms(job, elastic, candidates), int64(job.size(elastic)), nil) {
		if crosses > crossed {
			break
		}
		found, fits := b.packOn(job, elastic, candidates, set)
		if !fits {
			continue
		}
		b.undo(job, found)
		to := b.placesOf(found)
		// Among equal lists the first one is the tightest.
		if next := b.spreadOf(to); slices.Compare(next, least) < 0 || !isGathered && slices.Equal(next, least) {
			nodes, least, crossed, isGathered = found, next, tree.Crossed(to), true
		}
	}
	b.charge(job, nodes, 1)
	return nodes
}

// rooms returns how many replicas of a job each node holds, if it holds no others.
func (b *Board) rooms(job *Job, elastic int32, candidates [][]bool) []int32 {
	rooms, trial := make([]int32, len(b.nodes)), newPacking(b, job, elastic, candidates, job.tasksByScarcity(), []int{})
	for at := range rooms {
		rooms[at], _ = trial.fill(at)
	}
	return rooms
}
