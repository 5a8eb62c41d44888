// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"testing"
	"time"
)

func TestTheAddedVersionIsServedOnceNodesKnowAnEndpoint(t *testing.T) {
	t.Parallel()
	began := time.Now()
	added := &addedVersion{settle: 5 * time.Second}
	for _, step := range []struct {
		second          int
		isReady, served bool
	}{
		{0, false, false}, {1, true, false}, {5, true, false},
		{6, true, true}, {7, false, false}, {8, true, false}, {12, true, false}, {13, true, true},
	} {
		if got := added.isSettled(began.Add(time.Duration(step.second)*time.Second), step.isReady); got != step.served {
			t.Errorf("after %d seconds, with a ready endpoint %t: got %t", step.second, step.isReady, got)
		}
	}
}
