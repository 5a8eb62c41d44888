// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import "opendilab.org/di-orchestrator/allocation"

// pool is nodes and the jobs that compete for them. Each pool has its own price.
type pool struct {
	views []*view
	nodes []*allocation.Node
	// places are the places of the nodes among all.
	places []int
}

// pools divides jobs and nodes so that no job of one pool may run on a node of another.
// Jobs keep their order.
func pools(views []*view, nodes []*allocation.Node, board *allocation.Board) []*pool {
	reach := &reachable{board: board, groups: newUnionFind(len(nodes)), places: make(map[string]int, len(nodes)), accepting: map[string]int{}}
	for i, node := range nodes {
		reach.places[node.Object.Name] = i
	}
	nodeOf := make([]int, len(views))
	for i, v := range views {
		nodeOf[i] = reach.join(v)
	}
	var all []*pool
	byGroup := map[int]*pool{}
	poolOf := func(node int) *pool {
		group := noNode
		if node != noNode {
			group = reach.groups.find(node)
		}
		if byGroup[group] == nil {
			byGroup[group] = &pool{}
			all = append(all, byGroup[group])
		}
		return byGroup[group]
	}
	for i, v := range views {
		competing := poolOf(nodeOf[i])
		competing.views = append(competing.views, v)
	}
	for i, node := range nodes {
		competing := poolOf(i)
		competing.nodes, competing.places = append(competing.nodes, node), append(competing.places, i)
	}
	return all
}

// noNode is the place of a node that does not exist.
const noNode = -1

// reachable groups nodes by the jobs that may run on them.
type reachable struct {
	board  *allocation.Board
	groups unionFind
	// places are the places of the nodes, by name.
	places map[string]int
	// accepting is one of the nodes that accept the pods of a task, by their requirements. They are joined already.
	accepting map[string]int
}

// join joins the nodes that replicas of a job are on or may run on. It returns one of them, or noNode.
func (r *reachable) join(v *view) int {
	joined := noNode
	for _, name := range v.previous {
		if node, isKnown := r.places[name]; isKnown {
			joined = r.groups.join(joined, node)
		}
	}
	for task := range v.job.Tasks {
		joined = r.groups.join(joined, r.joinAccepting(v.job, task))
	}
	return joined
}

// joinAccepting joins the nodes that accept a task. It returns one of them, or noNode. Tasks that nodes accept by
// equal requirements share the nodes, which are joined once, unless their jobs exclude nodes.
func (r *reachable) joinAccepting(job *allocation.Job, task int) int {
	requirement := job.Tasks[task].Pod.NodesKey()
	if joined, isJoined := r.accepting[requirement]; isJoined && len(job.Excluded) == 0 {
		return joined
	}
	joined := noNode
	for node, isAccepted := range r.board.Accepting(job, task) {
		if isAccepted {
			joined = r.groups.join(joined, node)
		}
	}
	if len(job.Excluded) == 0 {
		r.accepting[requirement] = joined
	}
	return joined
}

// unionFind are disjoint groups of nodes: the parent of each node, and a root is its own parent.
type unionFind []int

// newUnionFind returns a group for each node.
func newUnionFind(nodes int) unionFind {
	groups := make(unionFind, nodes)
	for node := range groups {
		groups[node] = node
	}
	return groups
}

// find returns the root of a node's group.
func (u unionFind) find(node int) int {
	for u[node] != node {
		u[node] = u[u[node]]
		node = u[node]
	}
	return node
}

// join joins the groups of two nodes and returns one of the nodes. If only one of them exists, it returns that.
func (u unionFind) join(a, b int) int {
	switch {
	case a == noNode:
		return b
	case b != noNode:
		u[u.find(b)] = u.find(a)
	}
	return a
}
