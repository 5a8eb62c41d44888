// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"slices"
)

// order is what the replicas are sorted by.
type order int

const (
	byTask order = iota
	byNode
	byStatus
	byRestarts
	byAge
	orders
)

// String implements fmt.Stringer.
func (o order) String() string {
	return [...]string{"task", "node", "status", "restarts", "age"}[o]
}

// sort sorts replicas that are in the order of the tasks.
func (o order) sort(all []Replica) {
	slices.SortStableFunc(all, func(a, b Replica) int {
		switch o {
		case byNode:
			return cmp.Compare(a.Node, b.Node)
		case byStatus:
			return cmp.Compare(a.Status, b.Status)
		case byRestarts:
			return cmp.Compare(b.Restarts, a.Restarts)
		case byAge:
			return a.CreatedAt.Compare(b.CreatedAt)
		case byTask, orders:
		}
		return 0
	})
}
