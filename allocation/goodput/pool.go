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
func pools(views []*view, nodes []*allocation.Node) []*pool {
	sets := make([]int, len(nodes))
	for i := range sets {
		sets[i] = i
	}
	root := func(i int) int {
		for sets[i] != i {
			sets[i] = sets[sets[i]]
			i = sets[i]
		}
		return i
	}
	of := make([]int, len(views))
	for i, v := range views {
		of[i] = -1
		for _, node := range v.reaches(nodes) {
			if of[i] < 0 {
				of[i] = root(node)
			} else {
				sets[root(node)] = root(of[i])
			}
		}
	}
	byRoot := map[int]*pool{}
	var all []*pool
	find := func(at int) *pool {
		if at >= 0 {
			at = root(at)
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

// reaches returns the indices of the nodes that a replica of the job is on or may run on.
func (v *view) reaches(nodes []*allocation.Node) []int {
	var all []int
	on := map[string]bool{}
	for _, name := range v.previous {
		on[name] = true
	}
	for i, node := range nodes {
		if on[node.Object.Name] || v.acceptsAny(i, node) {
			all = append(all, i)
		}
	}
	return all
}

func (v *view) acceptsAny(i int, node *allocation.Node) bool {
	if v.accepts != nil && v.accepts[i] {
		return true
	}
	for task := range v.job.Tasks {
		if task != v.job.Elastic && v.job.Tasks[task].Pod.Accepts(node) {
			return true
		}
	}
	return false
}
