// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import "testing"

func TestHowFarARotationIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		state state
		want  string
		done  bool
		// waited reports whether --wait is satisfied.
		waited bool
	}{
		"no operator has answered": {state{places: 6, old: 6, replicas: 2}, "waiting for an operator to make another", false, false},
		"not yet everywhere":       {state{made: true, places: 6, new: 1, old: 6, replicas: 2}, "made; published beside the old one for 1 of 6 webhooks", false, false},
		"one is slow": {
			state{made: true, places: 6, new: 6, old: 6, replicas: 2, followed: 1, slow: []string{"operator-b"}},
			"published beside the old one; 1 of 2 webhooks serve by it; waiting for operator-b", false, false,
		},
		"all are away":        {state{made: true, places: 6, new: 6, old: 6}, "published beside the old one; 0 of 0 webhooks serve by it", false, false},
		"all have followed":   {state{made: true, places: 6, new: 6, old: 6, replicas: 2, followed: 2}, "all 2 webhooks serve by it; the old one will be dropped", true, false},
		"the old one is gone": {state{made: true, places: 6, new: 6, replicas: 2, followed: 2}, "all 2 webhooks serve by it; the old one is dropped", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, done := tc.state.describe(false)
			if said != tc.want || done != tc.done {
				t.Errorf("got %q, %t", said, done)
			}
			if _, waited := tc.state.describe(true); waited != tc.waited {
				t.Errorf("with --wait got %t", waited)
			}
		})
	}
}
