// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// The end-to-end tests pause training after each of about 40 rounds, before it may end.
func TestTheCurvesAreAsLongAsTheEndToEndTestsNeed(t *testing.T) {
	t.Parallel()
	for args, atLeast := range map[string]int{"--seed=1 --target=400": 45, "--seed=1": 20, "--seed=2": 20, "--seed=3": 20} {
		inCluster(t, func(c *cluster) {
			out := &output{}
			if err := run(c.ctx, c.process("alone", nil, out), append([]string{"serial"}, strings.Fields(args)...)); err != nil {
				c.Error(err)
			}
			if rounds := len(out.lines) - 1; rounds < atLeast || rounds > 100 {
				c.Errorf("%s: got %d rounds, want %d to 100", args, rounds, atLeast)
			}
		})
	}
}

// flaky fails every other call.
type flaky struct {
	local
	calls int
}

var errFlaky = errors.New("flaky")

func (f *flaky) play(ctx context.Context, u unit) ([]int, error) {
	if f.calls++; f.calls%2 == 0 {
		return nil, errFlaky
	}
	return f.local.play(ctx, u)
}

func TestUnitsOfAPlayerThatFailsArePlayedAgain(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		var team team[player]
		team.add("flaky", taskCollector, &flaky{})
		all := units(1, state{}, false)
		returns, err := playAll(c.Context(), &team, all)
		expect.NoError(c, err)
		for i, u := range all {
			if want := u.play(); returns[i][0] != want[0] || returns[i][1] != want[1] {
				c.Errorf("unit %d: got %v, want %v", i, returns[i], want)
			}
		}
	})
}

// broken always fails.
type broken struct{ local }

func (b *broken) play(context.Context, unit) ([]int, error) { return nil, errFlaky }

func TestAPlayerThatKeepsFailingIsLostOnce(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		losses := 0
		team := team[player]{lost: func(string, error) { losses++ }}
		team.add("broken", taskCollector, &broken{})
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		if _, err := playAll(ctx, &team, units(1, state{}, false)); !errors.Is(err, context.DeadlineExceeded) || losses != 1 {
			c.Errorf("got %v and %d losses, want no end and one loss", err, losses)
		}
	})
}

func TestEvaluatorsEvaluateAndCollectorsTakeTheirPlace(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		var team team[player]
		collector, evaluator := &flaky{}, &broken{}
		team.add("collector", taskCollector, collector)
		team.add("evaluator", taskEvaluator, &local{})
		if _, err := playAll(c.Context(), &team, units(1, state{}, true)); err != nil || collector.calls > 0 {
			c.Errorf("got %v and %d calls of the collector, want none", err, collector.calls)
		}
		team.add("evaluator", taskEvaluator, evaluator)
		if _, err := playAll(c.Context(), &team, units(1, state{}, true)); err != nil {
			c.Error(err)
		}
	})
}

// drifting takes another step than the others.
type drifting struct{ local }

func (d *drifting) step(ctx context.Context, r stepRequest) (state, error) {
	next, err := d.local.step(ctx, r)
	next.Weights[0] += 1e-9
	return next, err
}

func TestLearnersThatDivergeEndTrainingAlsoThroughTheNetwork(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		parts := map[string]identity{}
		var direct, aggregated team[learner]
		p := c.process("aggregator", nil, nil)
		for rank, l := range []learner{&local{}, &drifting{}} {
			url := []string{"sound:1", "drifting:1"}[rank]
			parts[url] = identity{Rank: rank, WorldSize: 2}
			mux := newMux(parts[url])
			serveLearner(mux, l)
			host, _, _ := strings.Cut(url, ":")
			c.wait.Go(func() { _ = c.process(host, nil, nil).serve(c.ctx, 1, mux) })
			direct.add(url, taskLearner, remote{p.client, url})
		}
		a := aggregatorOf(true, []string{"drifting:1", "sound:1"}, parts)
		a.process = p
		mux := newMux(identity{})
		serveLearner(mux, a)
		c.wait.Go(func() { _ = p.serve(c.ctx, 1, mux) })
		aggregated.add("aggregator", taskLearner, remote{p.client, "aggregator:1"})
		synctest.Wait() // until all listen
		request := stepRequest{Seed: 1}
		for _, u := range units(1, state{}, false) {
			request.Returns = append(request.Returns, u.play())
		}
		for _, team := range []*team[learner]{&direct, &aggregated} {
			if _, err := stepAll(c.Context(), team, request); !errors.Is(err, errDiverged) {
				c.Errorf("got %v, want %v", err, errDiverged)
			}
		}
	})
}

func TestMalformedRequestsAndRepliesAreErrors(t *testing.T) {
	t.Parallel()
	if _, err := (&local{}).step(t.Context(), stepRequest{Returns: [][]int{{1, 2}}}); err == nil {
		t.Error("a step with one unit is made")
	}
	if _, err := (&local{}).step(t.Context(), stepRequest{Returns: make([][]int, collectUnits)}); err == nil {
		t.Error("a step without returns is made")
	}
	if err := (unit{Evaluate: true}).check([]int{1, 2}); err == nil {
		t.Error("2 returns of an evaluation are taken for 5")
	}
}

func TestTrainingPausesUntilItIsReleased(t *testing.T) {
	t.Parallel()
	inCluster(t, func(c *cluster) {
		out := &output{}
		p := c.process("alone", nil, out)
		c.wait.Go(func() { _ = run(c.ctx, p, []string{"serial", easyTarget, "--pause-after=2"}) })
		for _, after := range []int{2, 4, 0} {
			if _, err := call[empty](c.Context(), p.client, http.MethodPut, "http://alone:22273/pause", pauseRequest{after}); after != 2 && err != nil {
				c.Fatal(err)
			}
			expect.NoError(c, pause(c.Context(), time.Minute))
			if after == 0 {
				break
			}
			at, err := call[progress](c.Context(), p.client, http.MethodGet, "http://alone:22273/progress", empty{})
			if err != nil || at.Round != after {
				c.Errorf("got round %d (%v), want %d", at.Round, err, after)
			}
		}
		c.wantReached(out, nil)
	})
}
