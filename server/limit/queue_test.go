// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func newNarrowQueue() *Queue {
	return &Queue{total: 1, perFlow: 1, flows: map[string]*flow{}}
}

func mustBeIdle(t *testing.T, queue *Queue) {
	t.Helper()
	if queue.Len() != 0 || len(queue.flows) != 0 || queue.running != 0 || len(queue.waiting) != 0 {
		t.Errorf("left behind: %+v", queue)
	}
}

func TestWaitingFlowsAreServedRoundRobin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := newNarrowQueue()
		var mutex sync.Mutex
		var order []string
		var group sync.WaitGroup
		read := func(key string) {
			group.Go(func() {
				release, err := queue.Acquire(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				defer release()
				mutex.Lock()
				order = append(order, key)
				mutex.Unlock()
				time.Sleep(time.Second) //nolint:forbidigo // the bubble's time
			})
			synctest.Wait()
		}
		for _, key := range []string{"a", "a", "a", "a", "b", "b", "c"} {
			read(key)
		}
		group.Wait()
		if got := fmt.Sprint(order); got != "[a a b c a b a]" {
			t.Errorf("got the order %s, want one of each in turn", got)
		}
		mustBeIdle(t, queue)
	})
}

func TestARequestThatGivesUpLeavesItsPlaceToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := newNarrowQueue()
		release, err := queue.Acquire(t.Context(), "a")
		expect.NoError(t, err)
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := queue.Acquire(impatient, "b"); err == nil {
			t.Error("b runs while a runs")
		}
		release()
		release, err = queue.Acquire(t.Context(), "c")
		expect.NoError(t, err)
		release()
		mustBeIdle(t, queue)
	})
}
