// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package local_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func small(cpu, memory int64) optimizer.Resources {
	return optimizer.Resources{CPU: cpu, Memory: memory}
}

func ps(replicas int32, requests optimizer.Resources) optimizer.Task {
	return optimizer.Task{Name: "ps", Role: optimizer.RoleParameterServer, Replicas: replicas, Min: replicas, Max: replicas, Requests: requests}
}

func worker(replicas, most int32, requests optimizer.Resources) optimizer.Task {
	return optimizer.Task{Name: "worker", Role: optimizer.RoleWorker, Replicas: replicas, Min: 1, Max: most, Requests: requests}
}

// steady returns a world whose replicas use a constant amount, and samples of some minutes.
func steady(t *testing.T, used map[string]optimizer.Resources, tasks ...optimizer.Task) *world {
	t.Helper()
	w := newWorld(t, local.Defaults(), tasks...)
	w.job.Stage = optimizer.StageRunning
	w.demand = func(task *optimizer.Task, _ int32) optimizer.Resources { return used[task.Name] }
	w.speed = func() float64 { return 100 }
	w.watch(10)
	return w
}

// watch takes samples without a decision.
func (w *world) watch(samples int) {
	for range samples {
		w.job.Now = w.job.Now.Add(30 * time.Second)
		w.sample()
	}
}

func (w *world) want(plan optimizer.Plan, reason string) {
	w.t.Helper()
	if !strings.Contains(plan.Reason, reason) {
		w.t.Errorf("got reason %q, want one with %q", plan.Reason, reason)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	settings := local.Defaults()
	if err := settings.Check(); err != nil {
		t.Error(err)
	}
	settings.Overload = math.NaN()
	if err := settings.Check(); err == nil || !strings.Contains(err.Error(), "optimizer.overload is NaN") {
		t.Errorf("got %v", err)
	}
}

func TestATaskWithoutRequestsGetsAPartOfTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Defaults(), ps(1, small(0, 0)), worker(1, 4, small(2000, 0)))
	w.job.Limits.Job = small(100_000, 20*gi)
	plan := w.decide()
	w.want(plan, "CREATE")
	if got := plan.Tasks[0].Requests; got != small(16_000, 4*gi) {
		t.Errorf("ps: got %+v, want 16 cores, the maximum, and a fifth of the memory", got)
	}
	if got := plan.Tasks[1].Requests; got != small(0, 4*gi) {
		t.Errorf("worker: got %+v, want its own CPU and a fifth of the memory", got)
	}
}

func TestAJobStartsWithWhatItsGroupUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Defaults(), worker(2, 4, small(8000, 2*gi)))
	w.job.History = &optimizer.History{Jobs: 3, Peaks: map[string]optimizer.Resources{"worker": small(1000, 4*gi)}}
	if got := w.decide().Tasks[0].Requests; got != small(1200, 6*gi) {
		t.Errorf("got %+v, want the peaks and their margins", got)
	}
}

func TestWorkersAreAddedWhileParameterServersAreIdle(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(3000, 2*gi), "worker": small(900, gi)}
	w := steady(t, used, ps(1, small(10_000, 3*gi)), worker(4, 20, small(1000, 2*gi)))
	plan := w.decide()
	w.want(plan, "IdleParameterServers: the busiest one uses 30 %")
	if got := *plan.Tasks[0].Replicas; got != 12 {
		t.Errorf("got %d workers, want 4 * 0.9 / 0.3", got)
	}
	w.execute(plan)
	w.watch(1)
	w.want(w.generate(), "waiting: the last plan is younger")
}

func (w *world) generate() optimizer.Plan {
	w.t.Helper()
	plan, err := w.optimizer.Generate(w.t.Context(), optimizer.StageOf(w.job), w.job)
	expect.NoError(w.t, err)
	return plan
}

func TestWorkersThatAddNoSpeedAreGivenBackOnce(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(3000, 2*gi), "worker": small(900, 17*gi/10)}
	w := steady(t, used, ps(1, small(4500, 3*gi)), worker(4, 20, small(1000, 2*gi)))
	w.execute(w.decide()) // to 5, at the same speed
	w.watch(12)
	plan := w.decide()
	w.want(plan, "NoSpeedup: the last added workers had 0 %")
	if got := *plan.Tasks[0].Replicas; got != 4 {
		t.Fatalf("got %d workers, want the earlier 4", got)
	}
	w.execute(plan)
	w.watch(12)
	for range 60 {
		w.watch(1)
		if plan := w.decide(); !plan.Empty() {
			t.Fatalf("got %+v, want none", plan)
		}
	}
}

func TestNoWorkersAreAddedToExhaustedParameterServers(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(9700, 2*gi), "worker": small(900, 17*gi/10)}
	w := steady(t, used, ps(2, small(10_000, 3*gi)), worker(4, 20, small(1000, 2*gi)))
	w.job.Limits.Replica.CPU = 10_000 // they cannot grow
	w.want(w.generate(), "waiting: the present size has not been observed")
	w.watch(20)
	w.want(w.generate(), "requests suit the usage")
}

func TestAllParameterServersThatAreHotGrow(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(9500, 2*gi), "worker": small(900, gi)}
	w := steady(t, used, ps(2, small(10_000, 3*gi)), worker(4, 4, small(1000, 2*gi)))
	w.job.Limits.Job.CPU = 24_000 + 4000
	plan := w.decide()
	if len(plan.Migrate) != 2 || plan.Migrate[0].Requests.CPU != 12_500 || plan.Migrate[1].Requests.CPU != 11_500 {
		t.Errorf("got %+v, want a quarter more for the first, and what the limit of the job leaves for the second", plan.Migrate)
	}
	w.execute(plan)
	if w.watch(1); !w.generate().Empty() {
		t.Error("got a second plan within a minute")
	}
}

func TestParameterServersFollowTheLoadOfWorkers(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(2000, 2*gi), "worker": small(900, gi)}
	servers := ps(1, small(4000, 3*gi))
	servers.Max = 10
	w := steady(t, used, servers, worker(4, 40, small(1000, 2*gi)))
	w.job.Stage = optimizer.StageWorkerInitial
	w.job.Limits.Job = small(30_000, 0)
	plan := w.decide()
	w.want(plan, "ServerLoad: a worker uses 500 millicores of parameter servers, and there may be 20 workers")
	if got := *plan.Tasks[0].Replicas; got != 3 {
		t.Errorf("got %d, want 20 * 0.5 / (4 * 0.9), rounded up", got)
	}
}

func TestAlmostFullMemoryGrowsBeforeItKills(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(100, 2*gi), "worker": small(900, 95*gi/100)}
	w := steady(t, used, ps(2, small(200, 3*gi)), worker(4, 4, small(1000, gi)))
	w.job.LastPlan = w.job.Now.Add(-61 * time.Second)
	plan := w.decide()
	w.want(plan, "MemoryFull: replicas of 1 task, or 0 on their own")
	if got := plan.Tasks[0].Requests.Memory; got < 14*gi/10 || got > 15*gi/10 {
		t.Errorf("got %d bytes, want half more than is used", got)
	}
}

func TestAShrinkThatCostsSpeedIsTakenBack(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"worker": small(1000, gi)}
	w := steady(t, used, worker(4, 4, small(4000, 4*gi)))
	w.watch(20)
	plan := w.decide()
	w.want(plan, "OverRequested")
	w.execute(plan)
	w.speed = func() float64 { return 90 } // bursts that samples do not show
	w.watch(6)
	plan = w.decide()
	w.want(plan, "ShrinkUndone: the speed fell from 100 to 90")
	w.execute(plan)
	if w.job.Tasks[0].Requests != small(4000, 4*gi) {
		t.Errorf("got %+v, want the earlier requests", w.job.Tasks[0].Requests)
	}
	w.run(10*time.Hour, 30*time.Second)
	if len(w.plans) != 2 {
		t.Errorf("got %d plans, want no other within a day", len(w.plans))
	}
}

func TestATaskThatShrankGetsItsCPUBackWhenItNeedsIt(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"worker": small(1000, gi)}
	w := steady(t, used, worker(4, 4, small(4000, 4*gi)))
	w.watch(20)
	w.execute(w.decide())
	used["worker"] = small(3500, gi)
	w.watch(6)
	plan := w.decide()
	w.want(plan, "CPUFull: worker-0 uses 100 % of its CPU")
	if got := plan.Tasks[0].Requests.CPU; got != 4000 {
		t.Errorf("got %d millicores, want those of the template", got)
	}
}

func TestAReplicaWithMoreMemoryKeepsItWhenItsTaskGrows(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"worker": small(900, 95*gi/100)}
	w := steady(t, used, worker(4, 4, small(1000, gi)))
	w.job.Tasks[0].Pods[2].Requests.Memory = 4 * gi // after a kill
	w.watch(6)
	plan := w.decide()
	if len(plan.Tasks) != 0 || len(plan.Migrate) != 3 {
		t.Fatalf("got %+v, want the other three by name", plan)
	}
	for _, migration := range plan.Migrate {
		if migration.Pod == "worker-2" {
			t.Errorf("got %+v, want worker-2 unchanged", migration)
		}
	}
}

func TestOutOfMemoryDoublesWithinLimits(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct{ had, node, limit, want int64 }{
		"twice":                    {had: 2 * gi, want: 4 * gi},
		"at most 8 GiB more":       {had: 20 * gi, want: 28 * gi},
		"at most 64 GiB":           {had: 60 * gi, want: 64 * gi},
		"at most the largest node": {had: 20 * gi, node: 24 * gi, want: 24 * gi},
		"at most the job's limit":  {had: 20 * gi, limit: 41 * gi, want: 21 * gi},
		"nothing is left":          {had: 64 * gi},
	} {
		w := newWorld(t, local.Defaults(), worker(2, 4, small(1000, one.had)))
		w.job.Limits.Node.Memory, w.job.Limits.Job.Memory = one.node, one.limit
		plan, err := w.optimizer.RecoverOOM(t.Context(), w.job.Tasks[0].Pods[:1], w.job)
		expect.NoError(t, err)
		got := int64(0)
		if len(plan.Migrate) == 1 {
			got = plan.Migrate[0].Requests.Memory
		}
		if got != one.want || !strings.HasPrefix(plan.Reason, "OutOfMemory: ") {
			t.Errorf("%s: got %d GiB and %q, want %d GiB", name, got/gi, plan.Reason, one.want/gi)
		}
	}
}

func TestABusyJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	used := map[string]optimizer.Resources{"ps": small(9500, 2*gi), "worker": small(900, gi)}
	w := steady(t, used, ps(2, small(10_000, 3*gi)), worker(4, 4, small(1000, 2*gi)))
	w.job.Busy = true
	w.want(w.generate(), "waiting: a plan executes")
}

// random is a job whose demand jumps and varies at random.
func random(t *testing.T, seed uint64) *world {
	t.Helper()
	source := rand.New(rand.NewPCG(seed, 18))
	amount := func() optimizer.Resources { return small(100+source.Int64N(16_000), gi/4+source.Int64N(32*gi)) }
	servers := ps(1+source.Int32N(4), amount())
	servers.Max = servers.Replicas + source.Int32N(4)
	w := newWorld(t, local.Defaults(), servers, worker(1+source.Int32N(6), 12, amount()), optimizer.Task{
		Name: "learner", Role: optimizer.RoleLearner, Replicas: 1, Min: 1, Max: 1, Requests: amount(),
	})
	total := optimizer.Total(w.job, optimizer.Plan{})
	w.job.Limits.Job = small(total.CPU*(100+source.Int64N(200))/100, total.Memory*(100+source.Int64N(200))/100)
	level := map[string]optimizer.Resources{}
	w.demand = func(task *optimizer.Task, index int32) optimizer.Resources {
		if _, known := level[task.Name]; !known || source.IntN(2000) == 0 {
			level[task.Name] = amount()
		}
		skew := 1 + 0.3*math.Sin(float64(index)) + 0.2*source.NormFloat64()
		return small(int64(float64(level[task.Name].CPU)*max(skew, 0)), int64(float64(level[task.Name].Memory)*max(skew, 0)))
	}
	w.speed = func() float64 { return max(0, 100+20*source.NormFloat64()) }
	return w
}

// TestRandomUsageNeverMakesItOscillate verifies the limits of every plan, and bounds their number.
func TestRandomUsageNeverMakesItOscillate(t *testing.T) {
	t.Parallel()
	most, reasons := 0, map[string]int{}
	for seed := range uint64(12) {
		w := random(t, seed)
		w.run(6*time.Hour, time.Minute)
		checkLimits(t, seed, w)
		for _, one := range w.plans {
			reason, _, _ := strings.Cut(one.plan.Reason, ":")
			reasons[reason]++
		}
		most = max(most, len(w.plans))
		if turns := w.turns(); turns > 4 {
			t.Errorf("seed %d: the requests of a task turned %d times in 6 hours, want at most 4", seed, turns)
		}
	}
	t.Logf("at most %d plans of a job in 6 hours, of all jobs %v", most, reasons)
	if most > 30 {
		t.Errorf("a job had %d plans in 6 hours, want at most 30", most)
	}
}

func checkLimits(t *testing.T, seed uint64, w *world) {
	t.Helper()
	for i := range w.plans {
		job, plan := &w.plans[i].before, w.plans[i].plan
		if total := optimizer.Total(job, plan); total.CPU > w.job.Limits.Job.CPU || total.Memory > w.job.Limits.Job.Memory {
			t.Errorf("seed %d: total of %+v, limit %+v", seed, total, w.job.Limits.Job)
		}
		if i > 0 && w.plans[i].at.Sub(w.plans[i-1].at) < w.settings.UrgentInterval {
			t.Errorf("seed %d: two plans within %s", seed, w.settings.UrgentInterval)
		}
		for _, change := range plan.Tasks {
			task := job.Task(change.Name)
			if change.Replicas != nil && (*change.Replicas < task.Min || *change.Replicas > task.Max) {
				t.Errorf("seed %d: %d replicas", seed, *change.Replicas)
			}
			peak := optimizer.Peaks(job)[task.Name]
			within(t, seed, w, change.Requests, optimizer.Resources{CPU: min(peak.CPU, task.Requests.CPU), Memory: min(peak.Memory, task.Requests.Memory)})
		}
		for _, migration := range plan.Migrate {
			within(t, seed, w, migration.Requests, optimizer.Resources{})
		}
	}
}

func within(t *testing.T, seed uint64, w *world, got, peak optimizer.Resources) {
	t.Helper()
	if most := w.settings.Max; got.CPU > most.CPU || got.Memory > most.Memory {
		t.Errorf("seed %d: got %+v, more than a replica may have", seed, got)
	}
	if got.CPU > 0 && got.CPU < peak.CPU || got.Memory > 0 && got.Memory < peak.Memory {
		t.Errorf("seed %d: got %+v, less than the peak usage %+v", seed, got, peak)
	}
}

// turns returns how often the requests of one task changed their direction, at most.
func (w *world) turns() int {
	most := 0
	for i := range w.job.Tasks {
		name, turns, last := w.job.Tasks[i].Name, 0, 0
		for _, one := range w.plans {
			for _, change := range one.plan.Tasks {
				if change.Name != name || change.Requests.CPU == 0 {
					continue
				}
				direction := 1
				if change.Requests.CPU < one.before.Task(name).Requests.CPU {
					direction = -1
				}
				if last != 0 && direction != last {
					turns++
				}
				last = direction
			}
		}
		most = max(most, turns)
	}
	return most
}
