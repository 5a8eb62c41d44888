// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// searchTime bounds the search for an order of the calls of one job.
const searchTime = 20 * time.Second

// counted is the promise that the size of a worker-led job is linearizable: there is an order of all requests and
// reads, each between its begin and its end, in which each read finds the sum of the requests before it.
type counted struct {
	calls map[string][]*history.Call
	// spoilt are jobs whose size others changed.
	spoilt map[string]bool
	// ordered are the jobs and searched the calls that were searched for an order. The time did not suffice for undecided jobs.
	ordered, searched, undecided int
}

func newCounted() *counted {
	return &counted{calls: map[string][]*history.Call{}, spoilt: map[string]bool{}}
}

func (*counted) name() string { return "The requests to resize a job are linearizable" }

func (c *counted) see(w *world, entry *history.Entry) []broken {
	if call := entry.Call; call != nil && call.Mark == "" && call.URLs == nil {
		switch call.Operation {
		case history.Grow, history.Shrink, history.Count:
			c.calls[call.Job] = append(c.calls[call.Job], call)
		}
	}
	if before := w.before.job; before != nil && before.Generation > 0 {
		now := w.jobs[entry.Change.UID].state
		if total(&now) != total(before) || now.ElasticReplicas != before.ElasticReplicas || now.Plan != before.Plan {
			c.spoilt[entry.Change.UID] = true
		}
	}
	return nil
}

// total is the number of replicas of a spec.
func total(state *history.JobState) int {
	sum := 0
	for _, task := range state.Tasks {
		sum += task.Replicas
	}
	return sum
}

func (c *counted) end(w *world) []broken {
	var found []broken
	for _, uid := range slices.Sorted(maps.Keys(c.calls)) {
		if c.spoilt[uid] {
			continue
		}
		operations := c.operations(uid)
		c.ordered, c.searched = c.ordered+1, c.searched+len(operations)
		switch porcupine.CheckOperationsTimeout(counter(), operations, searchTime) {
		case porcupine.Ok:
		case porcupine.Unknown:
			c.undecided++
		case porcupine.Illegal:
			found = append(found, broken{job: w.jobs[uid], name: uid, story: fmt.Sprintf(
				"no order of %d requests and reads of the size explains what was answered", len(operations))})
		}
	}
	return found
}

// operations returns the calls of a job. One without an answer may be executed at any later time, or never.
func (c *counted) operations(uid string) []porcupine.Operation {
	var operations []porcupine.Operation
	for i, call := range c.calls[uid] {
		if call.Refused || call.Operation == history.Count && !call.Done() {
			continue
		}
		end := call.End.UnixNano()
		if !call.Done() {
			end = math.MaxInt64
		}
		operations = append(operations, porcupine.Operation{ClientId: i, Input: call, Call: call.Begin.UnixNano(), Return: end})
	}
	return operations
}

// unknownSize is the size of a job before the first read.
const unknownSize = -1

// counter is the model: a number to which requests add. A job keeps one replica.
func counter() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{unknownSize} },
		Step: func(state, input, _ any) []any {
			size, isSize := state.(int)
			call, isCall := input.(*history.Call)
			if !isSize || !isCall {
				return nil
			}
			return after(size, call)
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return nondeterministic.ToModel()
}

// after returns the sizes that are possible after a call.
func after(size int, call *history.Call) []any {
	if call.Operation == history.Count {
		if size != unknownSize && size != call.Number {
			return nil
		}
		return []any{call.Number}
	}
	if size == unknownSize {
		return []any{unknownSize}
	}
	changed := size + call.Number
	if call.Operation == history.Shrink {
		changed = max(size-call.Number, 1)
	}
	if call.Done() {
		return []any{changed}
	}
	return []any{size, changed}
}
