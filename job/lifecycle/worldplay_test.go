// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/policies"
)

var (
	worldSeed   = flag.Uint64("world.seed", 1, "seed of the first random sequence; each next has the next")
	worldRounds = flag.Int("world.rounds", 100, "random sequences of each kind, each with jobs of its own")
	worldSteps  = flag.Int("world.steps", 150, "things that happen in each")
)

// mutantRounds is in how many worlds a fault of the operator must show.
const mutantRounds = 200

// game plays sequences by the same rules.
type game struct {
	policies *policies.Set
	// perform plays a sequence.
	perform func(*game, expect.Test, *course, uint64, story)
}

// story is the part of a seed's sequence that is played. A step depends only on the seed and its number, so other steps can
// be left out.
type story struct {
	steps []uint64
	// absent are the jobs that are left out, by their numbers.
	absent map[int]bool
}

// whole returns the story of a whole sequence.
func whole() story {
	told := story{steps: make([]uint64, *worldSteps)}
	for i := range told.steps {
		told.steps[i] = uint64(i)
	}
	return told
}

// playAll plays the sequences that the flags name, several at a time.
func (g *game) playAll(t *testing.T) {
	t.Helper()
	seeds, failed := make(chan uint64), make(chan uint64, *worldRounds)
	var playing sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		playing.Go(func() {
			for seed := range seeds {
				if failure, _ := g.play(seed, whole(), false); failure != "" {
					failed <- seed
				}
			}
		})
	}
	for round := range *worldRounds {
		if len(failed) > 0 {
			break
		}
		seeds <- *worldSeed + uint64(round)
	}
	close(seeds)
	playing.Wait()
	close(failed)
	for seed := range failed {
		g.explain(t, seed)
	}
}

// explain fails the test with the shortest story of a seed that fails.
func (g *game) explain(t *testing.T, seed uint64) {
	t.Helper()
	told := g.shorten(seed, whole())
	failure, trace := g.play(seed, told, true)
	t.Fatalf("-world.seed=%d, in %d steps: %s\n%s", seed, len(told.steps), failure, strings.Join(trace, "\n"))
}

// shorten leaves out the jobs and the steps without which a sequence still fails.
func (g *game) shorten(seed uint64, told story) story {
	fails := func(told story) bool {
		failure, _ := g.play(seed, told, false)
		return failure != ""
	}
	for job := range mostJobs {
		fewer := story{told.steps, maps.Clone(told.absent)}
		if fewer.absent == nil {
			fewer.absent = map[int]bool{}
		}
		if fewer.absent[job] = true; fails(fewer) {
			told = fewer
		}
	}
	for size := len(told.steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(told.steps); {
			fewer := story{slices.Concat(told.steps[:at], told.steps[at+size:]), told.absent}
			if fails(fewer) {
				told = fewer
			} else {
				at += size
			}
		}
	}
	return told
}

// player plays one sequence and ends it at the first failed check.
type player struct{ failure string }

func (p *player) Helper() {}

func (p *player) Errorf(format string, args ...any) { p.Fatalf(format, args...) }

func (p *player) Fatal(args ...any) { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *player) Fatalf(format string, args ...any) {
	p.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// play plays a story of a seed. It returns the failed check, and the trace if it is asked for.
func (g *game) play(seed uint64, told story, isTraced bool) (failure string, trace []string) {
	judge := &player{}
	course := &course{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), isTraced: isTraced}
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.perform(g, judge, course, seed, told)
	}()
	<-over
	return judge.failure, course.trace
}

// performOne plays a sequence of a worker-led job.
func performOne(g *game, t expect.Test, course *course, seed uint64, told story) {
	w := g.begin(t, course, seed, told, anySpec)
	w.calm(rand.New(rand.NewPCG(seed, 0)))
}

// performLed plays a sequence of a coordinator-led job.
func performLed(g *game, t expect.Test, course *course, seed uint64, told story) {
	w := g.begin(t, course, seed, told, anyLedSpec)
	w.calmLed()
}

// begin plays a sequence of a job up to when its faults stop.
func (g *game) begin(t expect.Test, course *course, seed uint64, told story, spec func(*rand.Rand) v2alpha1.DIJobSpec) *world {
	w := newWorld(t, spec(rand.New(rand.NewPCG(seed, 0))))
	w.course = course
	w.gangs = anyGangs(rand.New(rand.NewPCG(seed, 0)), &w.job.Spec)
	w.clocks, w.policies, w.isBusy = anyClocks(rand.New(rand.NewPCG(seed, 0))), g.policies, seed%2 == 0
	if seed%4 < 2 {
		w.settings.InlineNodes = -1
	}
	w.operator = w.newOperator(rand.New(rand.NewPCG(seed, 0)))
	w.standby = w.newOperator(rand.New(rand.NewPCG(seed, 1)))
	for _, step := range told.steps {
		w.happen(rand.New(rand.NewPCG(seed, 1+step)))
	}
	return w
}

// installed returns the manifests of the policies.
func installed(t *testing.T) []string {
	t.Helper()
	folder := filepath.Join("..", "..", "config", "policy")
	manifests, err := policies.Read(folder, filepath.Join(folder, "submitters"))
	expect.NoError(t, err)
	return manifests
}

// compiled returns the policies in manifests. Only the user may create pods.
func compiled(t *testing.T, manifests []string) *policies.Set {
	t.Helper()
	set, err := policies.Compile(manifests, func(user string) bool { return user == userAccount })
	expect.NoError(t, err)
	return set
}

// TestASequenceCanBeRepeated checks that a seed always plays the same sequence.
func TestASequenceCanBeRepeated(t *testing.T) {
	t.Parallel()
	of := compiled(t, installed(t))
	for _, perform := range []func(*game, expect.Test, *course, uint64, story){performOne, performLed, performFleet} {
		g := &game{policies: of, perform: perform}
		for seed := range uint64(seeds / 2) {
			_, first := g.play(seed, whole(), true)
			_, second := g.play(seed, whole(), true)
			if diff := cmp.Diff(first, second); diff != "" {
				t.Fatalf("seed %d (-first +second):\n%s", seed, diff)
			}
		}
	}
}
