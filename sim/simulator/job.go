// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"math"
	"slices"

	"opendilab.org/di-orchestrator/allocation/model"
)

// Job is a job while it is simulated. Its exported fields are what a policy may see.
type Job struct {
	Submission
	// Placement has the replicas by node, in the order of ranks; empty while it waits.
	Placement []int
	// Config is how it trains.
	Config model.Config
	// Observations are the step times that it has measured, one of each
	// configuration, and Noise is its gradient noise now.
	Observations []model.Observation
	Noise        model.Noise
	// MaxObserved is the largest number of replicas that it has trained with.
	MaxObserved int
	// Attained is the GPU time that it has had, in seconds.
	Attained float64
	// Restarts counts placements after the first.
	Restarts int
	// Restarting is how many seconds of a restart are left.
	Restarting int

	// target is the batch that it trains with; 0 where its goodput decides.
	target   int
	started  bool
	observed map[observed]bool
	// devices are the types of devices that it runs on; nil if there is one type. slowdown is how many times as long it
	// synchronizes there as within a rack; 0 is 1.
	devices  []string
	slowdown float64
	// span is that of its nodes, as the allocator knows it; 0 if it knows no racks.
	span int
	// fit is the model of the observations, outdated if stale.
	fit   *model.Throughput
	stale bool

	now, completion int
	// starved is for how many seconds it had no GPU while others had more than one replica.
	starved     int
	epoch, last int
	progress    float64
}

func newJob(submission Submission, policy Policy) *Job {
	last := submission.Application.Epochs
	if submission.Epochs > 0 {
		last = min(last, submission.Epochs)
	}
	return &Job{Submission: submission, target: policy.Target(&submission), last: last, observed: map[observed]bool{}}
}

// observed is a configuration that was measured on a type of devices, and on nodes of a span.
type observed struct {
	model.Config
	device string
	span   int
}

// device names the devices that the job runs on; empty if they are of several types, or of the only one.
func (j *Job) device() string {
	if len(j.devices) == 1 {
		return j.devices[0]
	}
	return ""
}

// comparable returns the observations that describe the devices that the job runs on, all if it has none.
func (j *Job) comparable() []model.Observation {
	device := j.device()
	here := slices.DeleteFunc(slices.Clone(j.Observations), func(o model.Observation) bool {
		return o.Device != device || o.Nodes > 1 && o.Span != j.span
	})
	if len(here) == 0 {
		return j.Observations
	}
	return here
}

// Model returns the goodput that the job itself fits to its observations, nil before the first.
func (j *Job) Model() *model.Goodput {
	if len(j.Observations) == 0 {
		return nil
	}
	if j.stale {
		fit := model.Fit(j.comparable(), j.fit)
		j.fit, j.stale = &fit, false
	}
	return &model.Goodput{Throughput: *j.fit, Noise: j.Noise, Bounds: j.Application.Bounds}
}

// Age returns the seconds since the submission.
func (j *Job) Age(now int) int { return now - j.Time }

// done reports whether the job has finished.
func (j *Job) done() bool { return j.completion > 0 }

func (j *Job) replicas() int {
	sum := 0
	for _, count := range j.Placement {
		sum += count
	}
	return sum
}

// chooseBatch sets the batch that the job trains with on its placement.
func (j *Job) chooseBatch() {
	bounds := &j.Application.Bounds
	nodes, replicas := len(j.Placement), j.replicas()
	batch, fitted := j.target, j.Model()
	switch {
	case batch == 0 && fitted != nil:
		j.Config, _ = fitted.Best(nodes, replicas)
		j.Config.Nodes, j.Config.Replicas = nodes, replicas
	case batch == 0:
		batch = max(bounds.Initial, bounds.MinAtomic*replicas)
		fallthrough
	default:
		j.Config = j.split(batch, nodes, replicas)
	}
	j.Config.Atomic = min(j.Config.Atomic, bounds.Max/(replicas*(j.Config.Accumulation+1)))
}

// split divides a given batch among replicas and passes. Unlike model.Bounds.Split it compares the
// whole batch with the initial one, as the artifact does.
func (j *Job) split(batch, nodes, replicas int) model.Config {
	bounds := &j.Application.Bounds
	local := math.Ceil(float64(batch)/float64(replicas) - 1e-8)
	accumulation := int(math.Ceil(local/float64(bounds.MaxAtomic)-1e-8)) - 1
	if replicas == 1 && batch > bounds.Initial {
		accumulation = max(1, accumulation)
	}
	atomic := int(math.Ceil(local/float64(accumulation+1) - 1e-8))
	return model.Config{Nodes: nodes, Replicas: replicas, Atomic: atomic, Accumulation: accumulation}
}

// observe records a step as the job would report it.
func (j *Job) observe(step, sync float64, noise model.Noise) {
	j.Noise = noise
	key := observed{model.Config{Nodes: j.Config.Nodes, Replicas: j.Config.Replicas, Atomic: j.Config.Atomic}, j.device(), j.span}
	if j.observed[key] {
		j.renew(key)
		return
	}
	j.observed[key] = true
	j.MaxObserved = max(j.MaxObserved, key.Replicas)
	j.Observations = append(j.Observations, model.Observation{
		Nodes: key.Nodes, Replicas: key.Replicas, Atomic: key.Atomic, Step: step, Accumulate: step - sync, Device: key.device, Span: key.span,
	})
	j.stale = true
}

// renew makes an observation the newest one if the newest was measured elsewhere.
func (j *Job) renew(key observed) {
	if last := &j.Observations[len(j.Observations)-1]; last.Device == key.device && last.Span == key.span {
		return
	}
	at := slices.IndexFunc(j.Observations, func(o model.Observation) bool {
		return observed{model.Config{Nodes: o.Nodes, Replicas: o.Replicas, Atomic: o.Atomic}, o.Device, o.Span} == key
	})
	one := j.Observations[at]
	j.Observations = append(slices.Delete(j.Observations, at, at+1), one)
}

// step advances the job's time. Interference is the part of its speed that it loses to
// neighbours.
func (j *Job) step(seconds int, interference float64) {
	if len(j.Placement) == 0 || j.done() {
		j.now += seconds
		return
	}
	replicas := float64(j.replicas())
	delay := min(j.Restarting, seconds)
	j.now += delay
	j.Attained += float64(delay) * replicas
	j.Restarting -= delay
	seconds -= delay
	for seconds > 0 && !j.done() {
		seconds -= j.train(seconds, interference)
		j.chooseBatch()
	}
	j.now += seconds
}

// train trains to the end of the time or of the epoch, and returns the seconds that
// this took.
func (j *Job) train(seconds int, interference float64) int {
	goodput := j.goodput(interference)
	end := j.Application.progress[j.epoch+1]
	taken := seconds
	if j.progress+goodput*float64(seconds) < end {
		j.progress += goodput * float64(seconds)
	} else {
		taken = int(math.RoundToEven((end - j.progress) / goodput))
		j.epoch++
		j.progress = end
		if j.epoch >= j.last {
			j.completion = j.now + taken
		}
	}
	j.now += taken
	j.Attained += float64(taken * j.replicas())
	return taken
}

// goodput returns the true goodput in steps of the initial batch per second, and
// lets the job observe its step.
func (j *Job) goodput(interference float64) float64 {
	batch := j.Config.Batch()
	step, sync := j.times()
	noise := j.Application.noise(batch, j.epoch)
	scale := float64(batch) / float64(j.Application.Bounds.Initial)
	gain := (noise.Var + noise.Sqr) / (noise.Var/scale + noise.Sqr)
	j.observe(step, sync, noise)
	return gain / (step + (step-sync)*float64(j.Config.Accumulation)) * (1 - interference)
}

// place moves the job, which costs a restart, or stops it, which costs nothing.
func (j *Job) place(nodes []int, restart int) {
	j.Placement = shape(nodes)
	if len(nodes) == 0 {
		j.Config.Atomic = 0
		return
	}
	j.stale = j.stale || len(j.devices) > 0 || j.span > 0
	j.chooseBatch()
	j.Restarting = restart
	if j.started {
		j.Restarts++
	}
	j.started = true
}

// shape returns the run lengths of equal neighbours: the replicas by node.
func shape(nodes []int) []int {
	var counts []int
	for i := range nodes {
		if i == 0 || nodes[i] != nodes[i-1] {
			counts = append(counts, 1)
		} else {
			counts[len(counts)-1]++
		}
	}
	return counts
}

// times returns the true step and synchronization time of the job where it is.
func (j *Job) times() (step, sync float64) {
	step, sync = j.Application.timesOn(j.devices, j.Placement, j.Config.Atomic)
	more := sync * (cmp.Or(j.slowdown, 1) - 1)
	return step + more, sync + more
}

// isMeasured reports whether the step time of the job's placement is known.
func (j *Job) isMeasured() bool {
	step, sync := j.times()
	return j.Config.Atomic > 0 && step > 0 && sync <= step && !math.IsInf(step, 0)
}

// Truth is what only a simulator knows about a job.
type Truth struct{ job *Job }

// Oracle returns the truth about a job, for baselines that know it in the artifact and
// for exact reports of progress.
func Oracle(job *Job) Truth { return Truth{job} }

// RemainingSteps returns the steps that are left with the batch that the user asks
// for, counted from the start of the epoch.
func (t Truth) RemainingSteps() float64 {
	application, last := t.job.Application, t.job.last-1
	if last <= t.job.epoch {
		return 1
	}
	return application.Iterations(t.job.Batch, last) - application.Iterations(t.job.Batch, t.job.epoch)
}

// Progress returns the work that is done, and the declared total, in steps of the initial batch. A
// job declares all epochs of its application, also one that stops early.
func (t Truth) Progress() (done, total float64) {
	total = t.job.Application.progress[t.job.Application.Epochs]
	if t.job.Declared > 0 {
		total *= t.job.Declared
	}
	return t.job.progress, total
}
