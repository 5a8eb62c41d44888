// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package train_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

var errBroken = errors.New("broken")

// easyTarget is reached early, which keeps the tests short.
const easyTarget = 80

// rig is a training with everything in this process.
type rig struct {
	pool   *train.Pool
	group  *train.Group
	config train.Config
	curve  []train.Progress
}

func newRig(seed uint64, lost func(string, error)) *rig {
	patience := train.Patience{Retry: time.Second, Attempts: 3, Lost: lost}
	r := &rig{pool: train.NewPool(patience, time.Now), group: train.NewGroup(patience, time.Now)}
	r.config = train.Config{
		Seed: seed, Target: easyTarget, MaxRounds: 80, Now: time.Now,
		Report: func(p train.Progress) {
			p.Elapsed, p.Collectors, p.Learners = 0, 0, 0
			r.curve = append(r.curve, p)
		},
	}
	return r
}

func (r *rig) run(t *testing.T) train.Progress {
	t.Helper()
	last, err := train.Run(t.Context(), r.config, r.pool, r.group)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// failing is a collector that plays some units and then fails.
type failing struct {
	train.LocalCollector
	left atomic.Int64
}

func (f *failing) Collect(ctx context.Context, u rollout.Unit, w policy.Weights) (rollout.Result, error) {
	if f.left.Add(-1) < 0 {
		return rollout.Result{}, errBroken
	}
	return f.LocalCollector.Collect(ctx, u, w)
}

func curveOf(t *testing.T, seed uint64, collectors, learners int) []train.Progress {
	t.Helper()
	r := newRig(seed, nil)
	for i := range collectors {
		r.pool.Add(fmt.Sprint("collector", i), train.Collecting, train.LocalCollector{})
	}
	for i := range learners {
		r.group.Add(fmt.Sprint("learner", i), &train.Local{})
	}
	r.run(t)
	return r.curve
}

func TestEverySeedReachesTheTarget(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		r := newRig(seed, nil)
		r.config.Target = 195
		r.pool.Add("collector", train.Collecting, train.LocalCollector{})
		r.group.Add("learner", &train.Local{})
		if last := r.run(t); !last.Reached() {
			t.Errorf("seed %d: %.1f after %d rounds", seed, last.Eval, last.Round)
		}
		if first := r.curve[0]; first.Eval > 60 {
			t.Errorf("seed %d: %.1f after the first round, want a policy that has yet to learn", seed, first.Eval)
		}
	}
}

func TestTheCurveDependsOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	want := curveOf(t, 4, 1, 1)
	tests := map[string]struct{ collectors, learners int }{
		"the same again":      {1, 1},
		"2 collectors":        {2, 1},
		"5 collectors":        {5, 1},
		"2 learners":          {2, 2},
		"3 learners":          {1, 3},
		"more than the units": {20, 11},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := curveOf(t, 4, tc.collectors, tc.learners); !slices.Equal(got, want) {
				t.Errorf("got another curve of %d rounds, want %d", len(got), len(want))
			}
		})
	}
	if slices.Equal(curveOf(t, 5, 1, 1), want) {
		t.Error("another seed gave the same curve")
	}
}

func TestACollectorLostInTheMiddleChangesNothing(t *testing.T) {
	t.Parallel()
	want := curveOf(t, 4, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, nil)
		r.config.MinRound = 2 * time.Second
		broken := &failing{}
		broken.left.Store(30)
		r.pool.Add("broken", train.Collecting, broken)
		r.pool.Add("sound", train.Collecting, train.LocalCollector{})
		r.group.Add("learner", &train.Local{})
		r.run(t)
		if !slices.Equal(r.curve, want) {
			t.Error("got another curve")
		}
	})
}

func TestACollectorThatKeepsFailingIsLostAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	want := curveOf(t, 4, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var lost []string
		begun := time.Now()
		r = newRig(4, func(name string, _ error) {
			lost = append(lost, name)
			r.pool.Remove(name)
			r.pool.Add("sound", train.Collecting, train.LocalCollector{})
		})
		broken := &failing{}
		broken.left.Store(30)
		r.pool.Add("broken", train.Collecting, broken)
		r.group.Add("learner", &train.Local{})
		r.run(t)
		if !slices.Equal(r.curve, want) {
			t.Error("got another curve")
		}
		// Failures at 0 s, 1 s and, two more seconds later, 3 s.
		if took := time.Since(begun); !slices.Equal(lost, []string{"broken"}) || took != 3*time.Second {
			t.Errorf("lost %v after %s, want [broken] after 3s", lost, took)
		}
	})
}

func TestWithoutCollectorsNoStepIsMade(t *testing.T) {
	t.Parallel()
	want := curveOf(t, 4, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, nil)
		r.config.MinRound = time.Second
		r.pool.Add("first", train.Collecting, train.LocalCollector{})
		r.pool.Add("evaluator", train.Evaluating, train.LocalCollector{})
		r.group.Add("learner", &train.Local{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run(t)
		}()
		<-time.After(3500 * time.Millisecond) // by the bubble's clock, in the fourth round
		r.pool.Remove("first")
		<-time.After(time.Minute)
		synctest.Wait()
		halted := len(r.curve)
		if halted == 0 || halted == len(want) {
			t.Fatalf("halted after %d of %d rounds, want some", halted, len(want))
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if len(r.curve) != halted {
			t.Errorf("made %d rounds without collectors", len(r.curve)-halted)
		}
		r.pool.Add("second", train.Collecting, train.LocalCollector{})
		<-done
		if !slices.Equal(r.curve, want) {
			t.Error("got another curve after the halt")
		}
	})
}

func TestEvaluatorsTakeEvaluationsFromCollectors(t *testing.T) {
	t.Parallel()
	r := newRig(1, nil)
	r.config.MaxRounds = 3
	counts := map[string]*counting{"collector": {}, "evaluator": {}}
	r.pool.Add("collector", train.Collecting, counts["collector"])
	r.pool.Add("evaluator", train.Evaluating, counts["evaluator"])
	r.group.Add("learner", &train.Local{})
	r.run(t)
	for name, want := range map[string][2]int64{"collector": {24, 0}, "evaluator": {0, 12}} {
		if got := [2]int64{counts[name].collected.Load(), counts[name].evaluated.Load()}; got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

type counting struct {
	train.LocalCollector
	collected, evaluated atomic.Int64
}

func (c *counting) Collect(ctx context.Context, u rollout.Unit, w policy.Weights) (rollout.Result, error) {
	if u.Kind == rollout.Collect {
		c.collected.Add(1)
	} else {
		c.evaluated.Add(1)
	}
	return c.LocalCollector.Collect(ctx, u, w)
}

// forgetful is a learner that misses some steps.
type forgetful struct {
	train.Local
	calls atomic.Int64
}

func (f *forgetful) Step(ctx context.Context, r train.StepRequest) (policy.State, error) {
	if f.calls.Add(1)%5 == 0 {
		return policy.State{}, errBroken
	}
	return f.Local.Step(ctx, r)
}

func TestALearnerThatMissesStepsChangesNothing(t *testing.T) {
	t.Parallel()
	want := curveOf(t, 4, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, nil)
		r.pool.Add("collector", train.Collecting, train.LocalCollector{})
		r.group.Add("a", &forgetful{})
		r.group.Add("b", &train.Local{})
		r.run(t)
		if !slices.Equal(r.curve, want) {
			t.Error("got another curve")
		}
	})
}

func TestALearnerThatKeepsFailingIsLostOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost []string
		r := newRig(4, func(name string, _ error) { lost = append(lost, name) })
		r.config.MinRound = 5 * time.Second
		r.pool.Add("collector", train.Collecting, train.LocalCollector{})
		r.group.Add("broken", broken{})
		r.group.Add("sound", &train.Local{})
		r.run(t)
		if !slices.Equal(lost, []string{"broken"}) {
			t.Errorf("lost %v, want [broken]", lost)
		}
	})
}

type broken struct{}

func (broken) State(context.Context) (policy.State, error) { return policy.State{}, errBroken }
func (broken) Step(context.Context, train.StepRequest) (policy.State, error) {
	return policy.State{}, errBroken
}

// drifting is a learner that ends in another state than the others.
type drifting struct{ train.Local }

func (d *drifting) Step(ctx context.Context, r train.StepRequest) (policy.State, error) {
	next, err := d.Local.Step(ctx, r)
	next.Weights[0] += 1e-12
	return next, err
}

func TestLearnersThatDivergeEndTraining(t *testing.T) {
	t.Parallel()
	r := newRig(1, nil)
	r.pool.Add("collector", train.Collecting, train.LocalCollector{})
	r.group.Add("sound", &train.Local{})
	r.group.Add("drifting", &drifting{})
	if _, err := train.Run(t.Context(), r.config, r.pool, r.group); !errors.Is(err, train.ErrDiverged) {
		t.Errorf("got %v, want %v", err, train.ErrDiverged)
	}
}

func TestTrainingEndsAtTheRoundLimit(t *testing.T) {
	t.Parallel()
	r := newRig(1, nil)
	r.config.MaxRounds = 2
	r.pool.Add("collector", train.Collecting, train.LocalCollector{})
	r.group.Add("learner", &train.Local{})
	if last := r.run(t); last.Reached() || last.Round != 2 {
		t.Errorf("got %+v, want two rounds that miss the target", last)
	}
}

func TestTrainingGoesOnWhereAnotherDriverStopped(t *testing.T) {
	t.Parallel()
	want := curveOf(t, 4, 1, 1)
	first := newRig(4, nil)
	first.config.MaxRounds = 3
	kept := &train.Local{}
	first.pool.Add("collector", train.Collecting, train.LocalCollector{})
	first.group.Add("learner", kept)
	first.run(t)

	second := newRig(4, nil)
	second.pool.Add("collector", train.Collecting, train.LocalCollector{})
	second.group.Add("kept", train.Ensemble{{Name: "restarted", Learner: &train.Local{}}, {Name: "kept", Learner: kept}})
	second.group.Add("new", &train.Local{})
	second.config.From = second.group.Held(t.Context(), 2)
	second.run(t)
	want[2].Return = 0 // the first training played the round that it continues from
	if !slices.Equal(second.curve, want[2:]) {
		t.Errorf("got the curve %+v, want %+v", second.curve, want[2:])
	}
}

func TestNoStateIsHeldByLearnersThatAreNew(t *testing.T) {
	t.Parallel()
	r := newRig(4, nil)
	r.group.Add("new", &train.Local{})
	if state := r.group.Held(t.Context(), 1); state.Round != 0 {
		t.Errorf("got the state of round %d, want none", state.Round)
	}
}

func TestAStateIsAwaitedNoLongerThanAllowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(4, nil)
		r.group.Add("broken", broken{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if state := r.group.Held(ctx, 1); state.Round != 0 || ctx.Err() == nil {
			t.Errorf("got the state of round %d with %v, want none after the time", state.Round, ctx.Err())
		}
	})
}
