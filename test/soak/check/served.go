// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// served is the promise that di-server executes each acknowledged request of a coordinator exactly once. Each request
// has a mark of its own, which the members that it creates carry.
type served struct {
	// slots are all members that ever carried a mark, by job and mark.
	slots map[[2]string]map[string]bool
	calls map[[2]string]*history.Call
	// coordinators are the pods whose requests were answered before. The first request of a new one creates only
	// what is missing.
	coordinators map[string]bool
	fresh        map[[2]string]bool
}

func newServed() *served {
	return &served{
		slots: map[[2]string]map[string]bool{}, calls: map[[2]string]*history.Call{},
		coordinators: map[string]bool{}, fresh: map[[2]string]bool{},
	}
}

func (*served) name() string {
	return "An acknowledged request of a coordinator is executed exactly once"
}

func (s *served) see(w *world, entry *history.Entry) []broken {
	if change := entry.Change; change != nil && change.Membership != nil && !change.Gone {
		for _, member := range change.Membership.Members {
			key := [2]string{change.Owner, member.Mark}
			if s.slots[key] == nil {
				s.slots[key] = map[string]bool{}
			}
			s.slots[key][member.Slot] = true
			if found := s.check(w, key, false); found != nil {
				return found
			}
		}
		return nil
	}
	call := entry.Call
	if call == nil || call.Operation != history.Grow || call.Mark == "" {
		return nil
	}
	key := [2]string{call.Job, call.Mark}
	s.calls[key] = call
	s.fresh[key] = !s.coordinators[call.Pod]
	// One that was not answered may not be the first.
	s.coordinators[call.Pod] = s.coordinators[call.Pod] || call.Done()
	return nil
}

// end compares what was answered with all members that there ever were. The record of a write may arrive after its
// answer.
func (s *served) end(w *world) []broken {
	var found []broken
	for key := range s.calls {
		found = append(found, s.check(w, key, true)...)
	}
	return found
}

// check compares a call with its members. More are never right, and fewer only while the history continues.
func (s *served) check(w *world, key [2]string, complete bool) []broken {
	call, got := s.calls[key], len(s.slots[key])
	if call == nil {
		return nil
	}
	of := w.jobs[key[0]]
	fewer := got < call.Number && call.Done() && !s.fresh[key] && (of == nil || !of.stops())
	half := got > 0 && got < call.Number && !s.fresh[key]
	// An answer may say that the job is gone, with all that the request had added before.
	refused := call.Refused && got > 0 && (of == nil || !of.gone)
	switch {
	case got > call.Number, refused:
	case complete && (fewer || half):
	default:
		return nil
	}
	delete(s.calls, key)
	return []broken{{job: of, story: fmt.Sprintf("a coordinator requested %d replicas marked %s once (%s), and %d were added",
		call.Number, call.Mark, outcome(call), got)}}
}

func outcome(call *history.Call) string {
	switch {
	case call.Done():
		return "it was answered"
	case call.Refused:
		return "it was refused"
	}
	return "it was not answered"
}
