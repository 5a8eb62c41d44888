// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
)

// RackLabel is the label of nodes that names their rack.
const RackLabel = "example.com/rack"

// Racks are racks of neighbouring nodes. The zero value is one rack.
type Racks struct {
	// Rack is how many nodes a rack has; 0 if all are in one.
	Rack int
	// Slowdown is how many times as long a job synchronizes across racks.
	Slowdown float64
	// Hidden is whether the nodes have no labels of racks, so that no policy knows them.
	Hidden bool
}

// labels returns the labels of a node.
func (c *Cluster) labels(node int) map[string]string {
	labels := map[string]string{}
	if len(c.Devices) > 0 {
		labels[DeviceKey] = c.Devices[node]
	}
	if c.Rack > 0 && !c.Hidden {
		labels[RackLabel] = fmt.Sprint("rack-", node/c.Rack)
	}
	return labels
}

// crosses reports whether nodes are of several racks.
func (r *Racks) crosses(nodes []int) bool {
	return r.Rack > 0 && slices.ContainsFunc(nodes, func(node int) bool { return node/r.Rack != nodes[0]/r.Rack })
}

// span returns the span of nodes as the allocator knows it: one more than the levels that they cross.
func (r *Racks) span(nodes []int) int {
	switch {
	case r.Rack == 0 || r.Hidden:
		return 0
	case r.crosses(nodes):
		return 2
	}
	return 1
}

// slowdown returns how many times as long a job synchronizes on nodes.
func (r *Racks) slowdown(nodes []int) float64 {
	if r.crosses(nodes) {
		return r.Slowdown
	}
	return 1
}
