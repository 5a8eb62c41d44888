// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// drained is the promise of the handshake: while a member knows another one as active, that one goes only after
// the former has acknowledged a list in which it read that the latter leaves.
type drained struct {
	// lists are what each pod has read of each version, and acks the versions that it has begun to acknowledge, by
	// UID of the pod.
	lists map[string]map[int64]*readList
	acks  map[string]map[int64]bool
}

// readList is a list with the time at which it was read.
type readList struct {
	*history.Read
	time time.Time
}

func (*drained) name() string {
	return "A member that holds state goes only after those that know it have acknowledged"
}

func (*drained) end(*world) []broken { return nil }

func (d *drained) see(w *world, entry *history.Entry) []broken {
	if d.lists == nil {
		d.lists, d.acks = map[string]map[int64]*readList{}, map[string]map[int64]bool{}
	}
	switch {
	case entry.Read != nil:
		if d.lists[entry.Read.Pod] == nil {
			d.lists[entry.Read.Pod] = map[int64]*readList{}
		}
		d.lists[entry.Read.Pod][entry.Read.Version] = &readList{Read: entry.Read, time: entry.Time}
	case entry.Call != nil && entry.Call.Operation == history.Ack:
		if d.acks[entry.Call.Pod] == nil {
			d.acks[entry.Call.Pod] = map[int64]bool{}
		}
		d.acks[entry.Call.Pod][int64(entry.Call.Number)] = true
	case entry.Change != nil:
		return d.removal(w)
	}
	return nil
}

func (d *drained) removal(w *world) []broken {
	of, left := removed(w), w.before.pod
	if of == nil || left.caused != "" || of.stops() || !of.state.Stateful() || restartedSince(of, left) {
		return nil
	}
	var missing []string
	for _, peer := range append(of.living(), left) {
		if d.knows(peer, left) && !d.agreed(peer, left) {
			missing = append(missing, fmt.Sprintf("%s (%s)", peer.name, peer.uid))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []broken{{job: of, story: fmt.Sprintf("pod %s (%s) is deleted, and these members that read of it as active have acknowledged no list in which it leaves: %s",
		left.name, left.uid, strings.Join(missing, ", "))}}
}

// restartedSince reports whether the whole job was restarted since a pod was created. The rounds are recorded before
// the pods of the last one are deleted.
func restartedSince(of *job, left *pod) bool {
	round := strings.Split(left.Attempt, "/")
	return !isCount(round[0], of.state.Restarts) || len(round) > 1 && !isCount(round[1], of.state.Reschedules)
}

// isCount reports whether an annotation has a number. It is absent for 0.
func isCount(text string, number int) bool {
	return text == strconv.Itoa(number) || text == "" && number == 0
}

// knows reports whether a member has read a list in which it and another one are active. A list that it read before the
// other pod was created speaks of an earlier pod of that name.
func (d *drained) knows(peer, other *pod) bool {
	for _, list := range d.lists[peer.uid] {
		isMember := slices.Contains(list.Active, peer.name) || slices.Contains(list.Leaving, peer.name)
		if isMember && !list.time.Before(other.created) && slices.Contains(list.Active, other.name) {
			return true
		}
	}
	return false
}

func (d *drained) agreed(peer, other *pod) bool {
	for version := range d.acks[peer.uid] {
		if list := d.lists[peer.uid][version]; list != nil && slices.Contains(list.Leaving, other.name) {
			return true
		}
	}
	return false
}
