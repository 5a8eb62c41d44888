// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
)

func TestEventsAreKeptInOrderOnceAndCountedWhenTheirNumberHasDoubled(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	event := func(uid string, second int, count int32) record.Event {
		return record.Event{UID: uid, Object: "Pod/ppo-0", Type: "Warning", Reason: "BackOff", Count: count, First: start, Last: start.Add(time.Duration(second) * time.Second)}
	}
	after := record.Job{}
	see := func(events ...record.Event) {
		t.Helper()
		var err error
		after, err = observe.Record(after, observe.Observation{Job: trained(), Events: events, Now: start})
		if err != nil {
			t.Fatal(err)
		}
	}
	see(event("b", 2, 1), event("a", 1, 1))
	see(event("b", 3, 2), event("b", 4, 3), event("c", 3, 1))
	if diff := cmp.Diff([]record.Event{event("a", 1, 1), event("b", 3, 2), event("c", 3, 1)}, after.Events); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var many []record.Event
	for i := range 1000 {
		many = append(many, event(fmt.Sprintf("many-%04d", i), 10+i, 1))
	}
	see(many...)
	see(event("a", 1, 1), many[0])
	if got := after.Events; len(got) != record.MaxChanges || got[0].UID != "many-0744" || after.Dropped["events"] != 1003-record.MaxChanges {
		t.Errorf("%d Events from %s on, %v dropped", len(got), got[0].UID, after.Dropped)
	}
}
