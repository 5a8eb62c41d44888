// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package brain_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/history/brain"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// The times of the operator: it decides each period by usage that is lag old, and a resize takes a while.
const (
	tick, period, lag, resizing = 5 * time.Second, 30 * time.Second, 15 * time.Second, 5 * time.Second
	length                      = time.Hour
)

// trace is what a replica uses at a time since its start.
type trace func(at time.Duration) optimizer.Resources

// peak returns the most that a trace uses, which the oracle of the tests is.
func (t trace) peak() optimizer.Resources {
	var most optimizer.Resources
	for at := time.Duration(0); at <= length; at += tick {
		used := t(at)
		most.CPU, most.Memory = max(most.CPU, used.CPU), max(most.Memory, used.Memory)
	}
	return most
}

// climbing uses memory that grows in the first minutes, and the CPU of its peak from then on.
func climbing(peak optimizer.Resources) trace {
	return func(at time.Duration) optimizer.Resources {
		share := min(at.Minutes()/5, 1)
		return optimizer.Resources{CPU: int64(float64(peak.CPU) * (0.3 + 0.7*share)), Memory: int64(float64(peak.Memory) * (0.02 + 0.98*share))}
	}
}

// doubling is a trace whose memory doubles from a time on, in a span of time.
func doubling(peak optimizer.Resources, from, span time.Duration) trace {
	before := climbing(peak)
	return func(at time.Duration) optimizer.Resources {
		used := before(at)
		used.Memory = int64(float64(used.Memory) * (1 + min(max(float64(at-from)/float64(span), 0), 1)))
		return used
	}
}

// run is a job that runs to its end under the operator, with one worker.
type run struct {
	optimizer optimizer.Optimizer
	job       *optimizer.Job
	uses      trace
	// attempts counts the starts, and first are the requests after the first decision.
	attempts  int
	first     optimizer.Resources
	decidedAt time.Time
}

// finish runs the job, each time from its start, until it has not been killed. A replica is killed when it uses more
// memory than it requests.
func (r *run) finish(t *testing.T) {
	t.Helper()
	for r.attempts = 1; r.attempts < 20 && !r.attempt(t); r.attempts++ {
	}
}

func (r *run) attempt(t *testing.T) (isDone bool) {
	t.Helper()
	task, start := &r.job.Tasks[0], r.job.Now
	var pending optimizer.Plan
	var due time.Time
	for at := time.Duration(0); at <= length; at += tick {
		r.job.Now = start.Add(at)
		if !pending.Empty() && !r.job.Now.Before(due) {
			r.execute(pending)
			pending = optimizer.Plan{}
			r.firstAfter(r.job.Now)
		}
		if had := task.Requests.Memory; r.uses(at).Memory > had {
			task.Peak.Memory = max(task.Peak.Memory, had)
			plan, err := r.optimizer.RecoverOOM(t.Context(), task.Pods, r.job)
			expect.NoError(t, err)
			r.execute(plan)
			r.job.LastPlan, r.job.Samples = r.job.Now, nil
			r.job.Now = r.job.Now.Add(time.Minute)
			return false
		}
		if at%period == 0 && at > 0 {
			r.observe(r.uses(at - lag))
			if plan := r.decide(t); !plan.Empty() {
				pending, due = plan, r.job.Now.Add(resizing)
			} else {
				r.firstAfter(r.job.Now)
			}
		}
	}
	return true
}

// firstAfter notes the requests after the first decision.
func (r *run) firstAfter(now time.Time) {
	if r.decidedAt.IsZero() {
		r.decidedAt, r.first = now, r.job.Tasks[0].Requests
	}
}

// observe adds a sample, as the autoscaler does.
func (r *run) observe(used optimizer.Resources) {
	task := &r.job.Tasks[0]
	r.job.Samples = append(r.job.Samples, optimizer.Sample{Time: r.job.Now, Usage: []optimizer.Usage{{Task: task.Name, Used: used, Requests: task.Requests}}})
	r.job.Samples = r.job.Samples[max(len(r.job.Samples)-20, 0):]
	task.Peak = optimizer.Peaks(r.job)[task.Name]
}

// decide asks the optimizer and checks its plan, as the autoscaler does.
func (r *run) decide(t *testing.T) optimizer.Plan {
	t.Helper()
	stage := optimizer.StageOf(r.job)
	plan, err := r.optimizer.Generate(t.Context(), stage, r.job)
	expect.NoError(t, err)
	r.job.Stage = stage
	plan, err = optimizer.Check(plan, r.job)
	expect.NoError(t, err)
	if !plan.Empty() {
		r.job.LastPlan = r.job.Now
	}
	return plan
}

func (r *run) execute(plan optimizer.Plan) {
	task := &r.job.Tasks[0]
	had := task.Requests
	for _, requests := range changes(plan) {
		if requests.CPU > 0 {
			task.Requests.CPU = requests.CPU
		}
		if requests.Memory > 0 {
			task.Requests.Memory = requests.Memory
		}
	}
	task.Pods[0].Requests = task.Requests
	if task.Requests.CPU > had.CPU || task.Requests.Memory > had.Memory {
		task.GrownAt = r.job.Now
	}
}

func changes(plan optimizer.Plan) []optimizer.Resources {
	var all []optimizer.Resources
	for _, task := range plan.Tasks {
		all = append(all, task.Requests)
	}
	for _, migration := range plan.Migrate {
		all = append(all, migration.Requests)
	}
	return all
}

// start returns a run of a job with a template and a past.
func start(template optimizer.Resources, uses trace, past []record.Job) *run {
	task := optimizer.Task{Name: "worker", Role: optimizer.RoleWorker, Replicas: 1, Min: 1, Max: 1, Requests: template, Template: template}
	task.Pods = []optimizer.Replica{{Task: "worker", Pod: "run-worker-0", Requests: template}}
	return &run{
		optimizer: brain.New(local.Defaults(), brain.Past{Job: recorded("now", 0, optimizer.Resources{}), Finished: past}), uses: uses,
		job: &optimizer.Job{
			Namespace: "default", Name: "run", Now: epoch, Tasks: []optimizer.Task{task},
			Limits: optimizer.Limits{Node: optimizer.Resources{CPU: 64_000, Memory: 256 * gi}},
		},
	}
}

// dice are the random numbers of a seed.
type dice struct{ *rand.Rand }

func roll(seed int) dice { return dice{rand.New(rand.NewPCG(uint64(seed), 79))} }

func (d dice) between(least, most float64) float64 { return least + (most-least)*d.Float64() }

// near returns an amount that differs from another by at most a share.
func (d dice) near(of optimizer.Resources, share float64) optimizer.Resources {
	return optimizer.Resources{
		CPU: int64(float64(of.CPU) * d.between(1-share, 1+share)), Memory: int64(float64(of.Memory) * d.between(1-share, 1+share)),
	}
}

func (d dice) peak() optimizer.Resources {
	return optimizer.Resources{CPU: int64(d.between(1000, 12_000)), Memory: int64(d.between(1, 24) * gi)}
}

func scaled(of optimizer.Resources, factor float64) optimizer.Resources {
	return optimizer.Resources{CPU: int64(float64(of.CPU) * factor), Memory: int64(float64(of.Memory) * factor)}
}

// runs returns 20 finished runs, one a day, that used about the same.
func (d dice) runs(peak optimizer.Resources, share float64) []record.Job {
	var all []record.Job
	for i := range 20 {
		all = append(all, recorded(fmt.Sprintf("run-%d", 20-i), i+1, d.near(peak, share)))
	}
	return all
}

const worlds = 100

// off returns by which share of a peak the requests differ from it.
func off(requests, peak optimizer.Resources) float64 {
	return max(math.Abs(float64(requests.CPU-peak.CPU))/float64(peak.CPU), math.Abs(float64(requests.Memory-peak.Memory))/float64(peak.Memory))
}

func TestAJobAfterTwentyRunsStartsNearItsPeak(t *testing.T) {
	t.Parallel()
	worst, killed := 0.0, 0
	for seed := range worlds {
		d := roll(seed)
		usual := d.peak()
		uses := climbing(d.near(usual, 0.03))
		r := start(scaled(usual, d.between(0.5, 6)), uses, d.runs(usual, 0.03))
		r.finish(t)
		worst = max(worst, off(r.first, uses.peak()))
		killed += r.attempts - 1
	}
	t.Logf("%d jobs of groups whose runs differ by 3 %%: requests at most %.1f %% from the peak, %d kills", worlds, 100*worst, killed)
	if worst > 0.15 || killed > 0 {
		t.Errorf("requests are up to %.1f %% from the peak, and %d kills: want at most 15 %% and none", 100*worst, killed)
	}
}

func TestNineOfTenJobsSurviveThatTheirMemoryDoubles(t *testing.T) {
	t.Parallel()
	for name, isKnown := range map[string]bool{"as it did in the past": true, "for the first time, in 5 to 30 minutes": false} {
		survived, alone := 0, 0
		for seed := range worlds {
			d := roll(seed)
			usual := d.peak()
			from, span := time.Duration(d.between(6, 20)*float64(time.Minute)), time.Duration(d.between(1, 5)*float64(time.Minute))
			past := optimizer.Resources{CPU: usual.CPU, Memory: 2 * usual.Memory}
			if !isKnown {
				past, span = usual, time.Duration(d.between(5, 30)*float64(time.Minute))
			}
			uses := doubling(d.near(usual, 0.1), from, span)
			template := scaled(usual, 1.3)
			r := start(template, uses, d.runs(past, 0.1))
			if r.finish(t); r.attempts == 1 {
				survived++
			}
			without := start(template, uses, nil)
			if without.finish(t); without.attempts == 1 {
				alone++
			}
		}
		t.Logf("%s: %d of %d survive without a restart, %d without a past", name, survived, worlds, alone)
		if survived < worlds*9/10 {
			t.Errorf("%s: %d of %d survive, want nine of ten", name, survived, worlds)
		}
	}
}

func TestAPoisonedPastCostsAtMostOneAttempt(t *testing.T) {
	t.Parallel()
	for _, wrong := range []float64{0.1, 10} {
		more, shrunk := 0, 0
		for seed := range worlds {
			d := roll(seed)
			usual := d.peak()
			uses := climbing(usual)
			if d.IntN(2) == 0 {
				uses = doubling(usual, 10*time.Minute, 2*time.Minute)
			}
			template := scaled(usual, d.between(0.6, 4))
			poisoned := start(template, uses, d.runs(scaled(uses.peak(), wrong), 0.05))
			poisoned.finish(t)
			without := start(template, uses, nil)
			without.finish(t)
			if poisoned.first.Memory < uses.peak().Memory {
				shrunk++
			}
			if poisoned.attempts > without.attempts {
				more++
			}
			if poisoned.attempts > without.attempts+1 {
				t.Errorf("seed %d, past x %v: %d attempts, without a past %d", seed, wrong, poisoned.attempts, without.attempts)
			}
		}
		t.Logf("past x %v: %d of %d started too small, and %d had one attempt more", wrong, shrunk, worlds, more)
		if wrong < 1 && shrunk < worlds/2 {
			t.Errorf("the past made only %d jobs start too small, which shows nothing", shrunk)
		}
	}
}
