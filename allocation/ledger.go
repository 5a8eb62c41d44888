// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger is the capacity of the written placements while placements are written one by one. Each write
// may fail, or be the last one of this process. What is written by then must not exceed the capacity of
// the nodes.
type Ledger struct {
	board *Board
	held  map[types.NamespacedName]*Stay
}

// NewLedger returns the ledger of jobs with the placements that were written last.
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

// Move takes the capacity of a job's desired placement, and gives back that of its written one. It
// returns false, and changes nothing, while other jobs have that capacity. If the write fails, undo
// takes the move back.
func (l *Ledger) Move(job *Job, to []string) (undo func(), moves bool) {
	from := l.held[job.Name]
	if slices.Equal(from.nodes, to) {
		return func() {}, true
	}
	l.board.Release(from)
	restore := func() { l.board.Retake(from) }
	if len(to) == 0 {
		return restore, true
	}
	moved := *job
	moved.Excluded = nil
	if len(from.nodes) > 0 {
		// Another placement restarts all ranks.
		moved.Ended, moved.Running = nil, nil
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
