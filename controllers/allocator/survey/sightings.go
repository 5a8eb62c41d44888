// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import "time"

// sightings are the states of objects that a round observes, by a key of the object. They are in memory: a new leader
// observes each from the beginning.
type sightings[K comparable] map[K]sighting

// sighting is a state that lasts. Another machine's clock tells when it began, which therefore only distinguishes it from a
// later one. The clock of this process tells since when it is observed.
type sighting struct{ began, since time.Time }

// observe returns how long the state has been observed in a row, and keeps it for the next round.
func (s sightings[K]) observe(key K, began, now time.Time, after sightings[K]) time.Duration {
	found, isKnown := s[key]
	if !isKnown || !found.began.Equal(began) {
		found = sighting{began, now}
	}
	after[key] = found
	return now.Sub(found.since)
}
