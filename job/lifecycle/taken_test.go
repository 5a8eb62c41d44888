// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestANameThatSomebodyElseHasIsWaitedFor(t *testing.T) {
	const name = "job-collector-0"
	tests := map[string]struct {
		taken         state.Taken
		after         time.Duration
		wantPods      int
		wantConflicts int
		wantAfter     time.Duration
	}{
		"an earlier job's":                   {state.Taken{}, 0, 1, 0, time.Minute},
		"an earlier job's that stays":        {state.Taken{}, time.Minute, 1, 1, 0},
		"one that leaves later":              {state.Taken{Leaving: start().Add(time.Hour)}, time.Minute, 1, 0, time.Hour},
		"a stranger's":                       {state.Taken{Message: "taken", Until: start().Add(30 * time.Second)}, 0, 1, 1, 30 * time.Second},
		"a stranger's, after it was waited":  {state.Taken{Message: "taken", Until: start().Add(30 * time.Second)}, 30 * time.Second, 2, 0, 0},
		"a leaving stranger's, after a wait": {state.Taken{Until: start().Add(30 * time.Second), Leaving: start()}, 30 * time.Second, 2, 0, 0},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			observed := newWorld(t, manyWorkers(2)).observe()
			observed.TakenPods = map[string]state.Taken{name: tc.taken}
			observed.Now = start().Add(tc.after)
			decision := Decide(observed)
			expect.Equal(t, "result", tc.wantPods, len(decision.CreatePods))
			expect.Equal(t, fmt.Sprintf("conflicts are %q", decision.Conflicts), tc.wantConflicts, len(decision.Conflicts))
			expect.Equal(t, "it is looked at again after", tc.wantAfter, decision.RequeueAfter)
		})
	}
}

// start returns when the job of a new world was created.
func start() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
}
