// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"flag"
	"testing"
	"testing/synctest"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
)

func TestTrainingIsHeldUpUntilItIsToldToGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		training := newTraining(System{}, flags)
		if err := flags.Parse([]string{"--pause-after=3"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begun := 0
		go func() {
			for training.gate(ctx, begun+1) == nil && begun < 99 {
				begun++
			}
		}()
		for _, step := range []struct{ after, want int }{{3, 3}, {5, 5}, {4, 5}, {0, 99}} {
			if _, err := training.pause(ctx, peer.Pause{After: step.after}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if begun != step.want {
				t.Errorf("paused after round %d: %d rounds begun, want %d", step.after, begun, step.want)
			}
		}
	})
}

func TestATrainingThatIsHeldUpEndsWithItsContext(t *testing.T) {
	t.Parallel()
	training := newTraining(System{}, flag.NewFlagSet("", flag.ContinueOnError))
	training.pauseAfter = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := training.gate(ctx, 2); err == nil {
		t.Error("want an error")
	}
}
