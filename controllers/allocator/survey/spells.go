// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import "time"

// spells are the states of objects that a round observes, by a key of the object. They are in memory: a new leader
// observes each from the beginning.
type spells[K comparable] map[K]spell

// spell is a state that lasts. Another machine's clock tells when it began, which therefore only distinguishes it from a
// later one. The clock of this process tells since when it is observed.
type spell struct{ began, since time.Time }

// observe returns how long the state has been observed in a row, and keeps it for the next round.
func (s spells[K]) observe(key K, began, now time.Time, after spells[K]) time.Duration {
	found, isKnown := s[key]
	if !isKnown || !found.began.Equal(began) {
		found = spell{began, now}
	}
	after[key] = found
	return now.Sub(found.since)
}
