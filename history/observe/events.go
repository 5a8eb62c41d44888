// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"slices"

	"opendilab.org/di-orchestrator/history/record"
)

// readEvents adds new Events, and notes how often known ones happened whenever that has doubled: an Event that
// repeats for days would otherwise write the record each time.
func readEvents(job *record.Job, seen Observation) {
	if len(seen.Events) == 0 {
		return
	}
	known := make(map[string]int, len(job.Events))
	for i, event := range job.Events {
		known[event.UID] = i
	}
	hasDropped, events := job.Dropped["events"] > 0, slices.Clone(job.Events)
	for _, event := range seen.Events {
		at, isKnown := known[event.UID]
		switch {
		case isKnown && event.Count >= 2*events[at].Count:
			events[at] = event
		case isKnown:
		case !hasDropped || event.Last.After(job.Events[0].Last):
			// Those that were dropped to make room would come back with each list.
			known[event.UID] = len(events)
			events = append(events, event)
		}
	}
	slices.SortStableFunc(events, func(a, b record.Event) int {
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.UID, b.UID))
	})
	job.Events = events
}
