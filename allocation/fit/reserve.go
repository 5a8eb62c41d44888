// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fit

import (
	"cmp"

	"opendilab.org/di-orchestrator/allocation"
)

// reserve reserves nodes for a job that does not fit, so that a stream of smaller jobs does not starve
// it. Only the first waiting job that has waited for ReserveAfter, and that the nodes could hold without
// other jobs, has a reservation. Jobs that follow it in the order are not placed on these nodes, and no
// job grows while it waits. Jobs that run there continue.
//
// The job is packed on the nodes that jobs occupy least. Nothing is remembered between rounds: reserved
// nodes only become emptier, so they are chosen again, unless others are even emptier.
func (d *decision) reserve(job *allocation.Job) {
	if d.reserving != nil || job.Waiting < cmp.Or(d.ReserveAfter, defaultReserveAfter) {
		return
	}
	nodes := allocation.NewBoard(d.round.Nodes).Emptiest(job, d.board)
	if len(nodes) == 0 {
		return
	}
	d.reserving = job
	d.board.Reserve(nodes)
}
