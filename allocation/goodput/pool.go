// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "opendilab.org/di-orchestrator/allocation"

// pool is nodes and the jobs that compete for them. Each pool has its own price.
type pool struct {
	views []*view
	nodes []*allocation.Node
}

// pools divides jobs and nodes so that no job of one pool may run on a node of another.
// Jobs keep their order.
func pools(views []*view, nodes []*allocation.Node, board *allocation.Board) []*pool {
	sets, index := make(unions, len(nodes)), make(map[string]int, len(nodes))
	for i, node := range nodes {
		sets[i], index[node.Object.Name] = i, i
	}
	of, joined := make([]int, len(views)), map[*bool]int{}
	for i, v := range views {
		of[i] = sets.reach(v, board, index, joined)
	}
	byRoot := map[int]*pool{}
	var all []*pool
	find := func(at int) *pool {
		if at >= 0 {
			at = sets.root(at)
		}
		if byRoot[at] == nil {
			byRoot[at] = &pool{}
			all = append(all, byRoot[at])
		}
		return byRoot[at]
	}
	for i, v := range views {
		one := find(of[i])
		one.views = append(one.views, v)
	}
	for i, node := range nodes {
		one := find(i)
		one.nodes = append(one.nodes, node)
	}
	return all
}

// reach joins the nodes that replicas of the job are on or may run on, and returns one of
// them; -1 if there is none. Jobs share what they accept, which is joined once.
func (u unions) reach(v *view, board *allocation.Board, index map[string]int, joined map[*bool]int) int {
	first := -1
	join := func(node int) {
		if first < 0 {
			first = node
		}
		u.join(first, node)
	}
	for _, name := range v.previous {
		if node, is := index[name]; is {
			join(node)
		}
	}
	for task := range v.job.Tasks {
		accepts := board.Accepting(v.job, task)
		if len(accepts) == 0 {
			continue
		}
		at, is := joined[&accepts[0]]
		if !is {
			at = u.joinAll(accepts)
			joined[&accepts[0]] = at
		}
		if at >= 0 {
			join(at)
		}
	}
	return first
}

// unions are disjoint sets of nodes, by a parent of each.
type unions []int

func (u unions) root(i int) int {
	for u[i] != i {
		u[i] = u[u[i]]
		i = u[i]
	}
	return i
}

func (u unions) join(i, j int) { u[u.root(j)] = u.root(i) }

// joinAll joins the nodes of a set, and returns the first of them.
func (u unions) joinAll(set []bool) int {
	first := -1
	for node, is := range set {
		switch {
		case is && first < 0:
			first = node
		case is:
			u.join(first, node)
		}
	}
	return first
}
