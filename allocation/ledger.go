// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Ledger is the capacity of the written placements while placements are written, in any order. Each write
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

// Move takes the capacity of a job's desired placement beside that of its written one. It returns false, and
// changes nothing, while other jobs have that capacity. Once the write has ended, the caller calls end with
// whether it succeeded, which gives back the capacity of the other placement.
func (l *Ledger) Move(job *Job, to []string) (end func(written bool), moves bool) {
	from := l.held[job.Name]
	if slices.Equal(from.nodes, to) {
		return func(bool) {}, true
	}
	l.board.Release(from)
	defer l.board.Retake(from)
	var taken *Stay
	if len(to) > 0 {
		if taken = l.take(job, from, to); taken == nil {
			return nil, false
		}
	}
	return func(written bool) {
		if written {
			l.board.Release(from)
		} else if taken != nil {
			l.board.Release(taken)
		}
	}, true
}

// take takes the capacity of a desired placement; nil if there is none.
func (l *Ledger) take(job *Job, from *Stay, to []string) *Stay {
	moved := *job
	moved.Excluded = nil
	if len(from.nodes) > 0 {
		// Another placement restarts all ranks.
		moved.Ended, moved.Running = nil, nil
	}
	taken := l.board.Keep(&moved, to)
	if taken != nil {
		l.board.KeepEnded(taken)
	}
	return taken
}
