// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger is what jobs are placed with while placements are written one by one:
// any of these writes may fail, or be the last one that this process does, and
// what is written by then must not be more than the nodes have.
type Ledger struct {
	board *board
	held  map[types.NamespacedName]*stay
}

// NewLedger returns the ledger of jobs that are placed as was written last.
func NewLedger(jobs []*Job, nodes []*Node, placed map[types.NamespacedName][]string) *Ledger {
	ledger := &Ledger{board: newBoard(nodes), held: make(map[types.NamespacedName]*stay, len(jobs))}
	for _, job := range inOrder(jobs) {
		ledger.held[job.Name] = ledger.board.hold(job, placed[job.Name])
	}
	for _, job := range inOrder(jobs) {
		ledger.board.keepEnded(ledger.held[job.Name])
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
	l.board.giveUp(from)
	restore := func() { l.board.shift(from, 1) }
	if len(to) == 0 {
		return restore, true
	}
	moved := *job
	if len(from.nodes) > 0 {
		// Another place starts all ranks again.
		moved.Ended = nil
	}
	taken := l.board.keep(&moved, to)
	if taken == nil {
		restore()
		return nil, false
	}
	l.board.keepEnded(taken)
	return func() {
		l.board.giveUp(taken)
		restore()
	}, true
}
