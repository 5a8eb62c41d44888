// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger is what jobs are placed with while placements are written one by one:
// any of these writes may fail, or be the last one that this process does, and
// what is written by then must not be more than the nodes have.
type Ledger struct {
	board *Board
	held  map[types.NamespacedName]*Stay
}

// NewLedger returns the ledger of jobs that are placed as was written last.
func NewLedger(jobs []*Job, nodes []*Node, placed map[types.NamespacedName][]string) *Ledger {
	ledger := &Ledger{board: NewBoard(nodes), held: make(map[types.NamespacedName]*Stay, len(jobs))}
	for _, job := range InOrder(jobs) {
		ledger.held[job.Name] = ledger.board.Hold(job, placed[job.Name])
	}
	for _, job := range InOrder(jobs) {
		ledger.board.KeepEnded(ledger.held[job.Name])
	}
	return ledger
}

// Move takes the room of where a job is to be, and gives back that of where it
// is. It returns false, and changes nothing, as long as others have that room;
// and how to take it back where the job could not be moved.
func (l *Ledger) Move(job *Job, to []string) (undo func(), moves bool) {
	from := l.held[job.Name]
	if slices.Equal(from.nodes, to) {
		return func() {}, true
	}
	l.board.Release(from)
	restore := func() { l.board.shift(from, 1) }
	if len(to) == 0 {
		return restore, true
	}
	moved := *job
	if len(from.nodes) > 0 {
		// Another place starts all ranks again.
		moved.Ended = nil
	}
	taken := l.board.Keep(&moved, to)
	if taken == nil {
		restore()
		return nil, false
	}
	l.board.KeepEnded(taken)
	return func() {
		l.board.Release(taken)
		restore()
	}, true
}
