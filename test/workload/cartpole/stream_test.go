// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestALearnerOfAStreamIsBusyStarvedAndFastAsItIsFed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStream(12, 0)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = s.learn(ctx) }()
		// 6 units a second starve a learner that takes 12 half of the time.
		for range 600 {
			if !s.offer() {
				t.Fatal("the queue is full")
			}
			<-time.After(time.Second / 6)
		}
		got := s.report()
		if got.Samples < 580 || got.BusySeconds < 48 || got.BusySeconds > 52 || got.StarvedSeconds < 48 || got.StarvedSeconds > 52 {
			t.Errorf("got %+v", got)
		}
		stop()
		synctest.Wait()
	})
}

func TestTheQueueOfAStreamIsBounded(t *testing.T) {
	t.Parallel()
	s := newStream(1, 0)
	for range streamCapacity {
		if !s.offer() {
			t.Fatal("the queue is full too early")
		}
	}
	if s.offer() {
		t.Error("the queue takes more than its capacity")
	}
	content, err := json.Marshal(s.report())
	expect.NoError(t, err)
	report, isRole, err := profilings.ParseRole(content)
	if err != nil || !isRole || report.Queue != streamCapacity || report.BatchSamples != streamBatch {
		t.Errorf("di-server reads %+v from %s, error %v", report, content, err)
	}
}
