// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"time"
)

// Report is what a replica reports: counters since it started, and gauges. A lost report costs
// nothing, because the next one has its counts too.
type Report struct {
	// Task is the task of the replica, and Replica identifies it in the task.
	Task, Replica string
	// Time is the replica's own clock in seconds, and Received the receiver's clock.
	Time     float64
	Received time.Time
	// Samples is how many samples the replica produced or consumed. Busy, Blocked and Starved are
	// how long it worked, waited for room or weights, and waited for samples, in seconds. All
	// counters fall to 0 when the replica restarts.
	Samples, Busy, Blocked, Starved float64
	// InFlight is how many samples a producer has begun and not delivered.
	InFlight float64
	// Batch, Queue, QueueCapacity, MaxStaleness and ReplayRatio are gauges of a consumer. 0 is not
	// reported. ReplayRatio is how often each sample is used; 1 by default.
	Batch, Queue, QueueCapacity, MaxStaleness, ReplayRatio float64
}

// EstimatorSettings are the constants of an Estimator. A value that is not positive has its default.
type EstimatorSettings struct {
	// Round is the time between reports of a replica; 10 s. The reports of a round are one level.
	Round time.Duration
	// Weight is the weight of a round in the exponential means; 0.08.
	Weight float64
	// Jump is by how much a level must differ from the mean to be a step; 0.25. After JumpRounds
	// such levels in a row, on one side, the mean starts again from them; 4.
	Jump       float64
	JumpRounds int
	// Expiry is how long a replica counts after its last report; 60 s.
	Expiry time.Duration
}

// DefaultEstimator returns the constants that the figures of docs/ratio.md hold for.
func DefaultEstimator() EstimatorSettings {
	return EstimatorSettings{Round: 10 * time.Second, Weight: 0.08, Jump: 0.25, JumpRounds: 4, Expiry: time.Minute}
}

// replica is the last report of a replica, and what it counted since.
type replica struct {
	last Report
	// samples and busy are since the last round in which there were samples. A step or an episode
	// may take many rounds, and its time counts together with its samples.
	samples, busy float64
	// waited and elapsed are since the last round.
	waited, elapsed float64
	// capacity is the last known one, for rounds without samples.
	capacity float64
}

// Estimator turns reports into a measurement. It is not safe for concurrent use.
type Estimator struct {
	settings             EstimatorSettings
	producers, consumers map[replicaKey]*replica
	// roundEnds is when the current round ends; zero before the first report.
	roundEnds time.Time
	// produced and consumed are the capacities, of all producers and of each task.
	produced, consumed level
	tasks              map[string]*level
	// blocked and starved are shares of time.
	blocked, starved portion
}

type replicaKey struct{ task, name string }

// NewEstimator returns an estimator that starts with the capacities of a state.
func NewEstimator(settings EstimatorSettings, state State) *Estimator {
	e := &Estimator{
		settings: settings.completed(), producers: map[replicaKey]*replica{}, consumers: map[replicaKey]*replica{},
		tasks: map[string]*level{},
	}
	for l, capacity := range map[*level]float64{&e.produced: state.ProducerCapacity, &e.consumed: state.ConsumerCapacity} {
		if isPositive(capacity) && capacity <= maxRate {
			*l = level{once: capacity, twice: capacity, rounds: 1}
		}
	}
	return e
}

func (s EstimatorSettings) completed() EstimatorSettings {
	defaults := DefaultEstimator()
	if s.Round <= 0 {
		s.Round = defaults.Round
	}
	if !(s.Weight > 0 && s.Weight <= 1) {
		s.Weight = defaults.Weight
	}
	if !isPositive(s.Jump) {
		s.Jump = defaults.Jump
	}
	if s.JumpRounds <= 0 {
		s.JumpRounds = defaults.JumpRounds
	}
	if s.Expiry <= 0 {
		s.Expiry = defaults.Expiry
	}
	return s
}

// AddProducer counts a report of a producer.
func (e *Estimator) AddProducer(r Report) { e.add(e.producers, r, r.Blocked) }

// AddConsumer counts a report of a consumer.
func (e *Estimator) AddConsumer(r Report) { e.add(e.consumers, r, r.Starved) }

func (e *Estimator) add(to map[replicaKey]*replica, r Report, waited float64) {
	if !r.isUsable() {
		return
	}
	e.advance(r.Received)
	key := replicaKey{r.Task, r.Replica}
	known, ok := to[key]
	if !ok {
		if len(to) >= maxReplicas {
			return
		}
		known = &replica{last: r}
		to[key] = known
		// Old counters of an unknown replica are history, young ones are the start of the replica.
		if age := r.Busy + r.Blocked + r.Starved; age <= e.settings.Expiry.Seconds() {
			known.count(r.Samples, r.Busy, waited, age)
		}
		return
	}
	e.compare(known, r)
}

// compare counts what a report has more than the last one of its replica.
func (e *Estimator) compare(known *replica, r Report) {
	last := known.last
	fell := r.Samples < last.Samples || r.Busy < last.Busy || r.Blocked < last.Blocked || r.Starved < last.Starved
	since := r.Received.Sub(last.Received)
	switch {
	case fell && r.Time <= last.Time && since < e.settings.Expiry:
		return // late: a newer report was here before
	case fell:
		known.count(r.Samples, r.Busy, r.Blocked+r.Starved, r.Busy+r.Blocked+r.Starved)
	default:
		// The replica's own clock measures best, unless it was set.
		elapsed := r.Time - last.Time
		if !(elapsed > 0 && elapsed <= (since+e.settings.Expiry).Seconds()) {
			elapsed = max(since.Seconds(), 0)
		}
		known.count(r.Samples-last.Samples, r.Busy-last.Busy, r.Blocked-last.Blocked+r.Starved-last.Starved, elapsed)
	}
	known.last = r
}

func (r *replica) count(samples, busy, waited, elapsed float64) {
	r.samples += samples
	r.busy += busy
	r.waited += waited
	r.elapsed += elapsed
}

// isUsable reports whether all numbers of a report can be.
func (r *Report) isUsable() bool {
	for _, x := range []float64{
		r.Samples, r.Busy, r.Blocked, r.Starved, r.InFlight, r.Batch, r.Queue, r.QueueCapacity, r.MaxStaleness, r.ReplayRatio,
	} {
		if !(x >= 0 && x <= maxSamples) {
			return false
		}
	}
	return math.Abs(r.Time) <= maxSamples
}

// advance closes the round if it ended.
func (e *Estimator) advance(now time.Time) {
	if e.roundEnds.IsZero() {
		e.roundEnds = now.Add(e.settings.Round)
	}
	if now.Before(e.roundEnds) {
		return
	}
	e.roundEnds = now.Add(e.settings.Round)
	for _, replicas := range []map[replicaKey]*replica{e.producers, e.consumers} {
		maps.DeleteFunc(replicas, func(_ replicaKey, r *replica) bool { return now.Sub(r.last.Received) > e.settings.Expiry })
	}
	e.closeProducers()
	e.closeConsumers()
}

// inOrder returns replicas by name, so that the same reports give the same sums.
func inOrder(replicas map[replicaKey]*replica) iter.Seq2[replicaKey, *replica] {
	return func(yield func(replicaKey, *replica) bool) {
		keys := slices.SortedFunc(maps.Keys(replicas), func(a, b replicaKey) int {
			return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.name, b.name))
		})
		for _, key := range keys {
			if !yield(key, replicas[key]) {
				return
			}
		}
	}
}

// sums are totals of replicas in a round.
type sums struct{ samples, busy, waited, elapsed float64 }

func (e *Estimator) closeProducers() {
	var all sums
	tasks := map[string]sums{}
	for key, r := range inOrder(e.producers) {
		all.waited, all.elapsed = all.waited+r.waited, all.elapsed+r.elapsed
		r.waited, r.elapsed = 0, 0
		if r.samples <= 0 || r.busy <= 0 {
			continue
		}
		of := tasks[key.task]
		of.samples, of.busy = of.samples+r.samples, of.busy+r.busy
		tasks[key.task] = of
		all.samples, all.busy = all.samples+r.samples, all.busy+r.busy
		r.samples, r.busy = 0, 0
	}
	e.produced.add(all.samples/all.busy, e.settings)
	e.blocked.add(all.waited / all.elapsed)
	for task, of := range tasks {
		if e.tasks[task] == nil {
			e.tasks[task] = &level{}
		}
		e.tasks[task].add(of.samples/of.busy, e.settings)
	}
}

func (e *Estimator) closeConsumers() {
	var all sums
	capacity, isNew := 0.0, false
	for _, r := range inOrder(e.consumers) {
		all.waited, all.elapsed = all.waited+r.waited, all.elapsed+r.elapsed
		r.waited, r.elapsed = 0, 0
		if r.samples > 0 && r.busy > 0 {
			r.capacity = r.samples / r.busy
			if r.last.ReplayRatio > 0 {
				r.capacity /= r.last.ReplayRatio
			}
			r.samples, r.busy = 0, 0
			isNew = true
		}
		capacity += r.capacity
	}
	if isNew {
		e.consumed.add(capacity, e.settings)
	}
	e.starved.add(all.waited / all.elapsed)
}

// Measure returns what the reports say at a time. The pools are those of the tasks. Their running
// replicas are those that report; the caller knows how many are requested and stuck.
func (e *Estimator) Measure(tasks []string, now time.Time) Measurement {
	e.advance(now)
	m := Measurement{
		ProducerCapacity: e.produced.now(e.settings), ConsumerCapacity: e.consumed.now(e.settings),
		ProducerTrend: e.produced.trend(e.settings), ConsumerTrend: e.consumed.trend(e.settings),
		Blocked: e.blocked.mean, Starved: e.starved.mean, Pools: make([]PoolSize, len(tasks)),
	}
	for i, task := range tasks {
		if of := e.tasks[task]; of != nil {
			m.Pools[i].Capacity = of.now(e.settings)
		}
	}
	for key, r := range inOrder(e.producers) {
		m.InFlight += r.last.InFlight
		for i, task := range tasks {
			if key.task == task {
				m.Pools[i].Running++
			}
		}
	}
	var latest time.Time
	for _, r := range inOrder(e.consumers) {
		// Replicas of one consumer share a queue. The latest report that has a batch describes it.
		if r.last.Batch <= 0 || r.last.Received.Before(latest) {
			continue
		}
		latest = r.last.Received
		m.Batch, m.Queue, m.QueueCapacity, m.MaxStaleness = r.last.Batch, r.last.Queue, r.last.QueueCapacity, r.last.MaxStaleness
	}
	return m
}

// level is an exponential mean that follows ramps without lag and steps at once.
type level struct {
	// once and twice are the exponential means of the rounds, and of once. Both lag behind a ramp, and
	// twice lags twice as far, so their difference is the ramp (Brown's double smoothing).
	once, twice float64
	rounds      int
	// far are the last levels that were far above the mean, or far below it (side).
	far  []float64
	side int
}

// now returns the level without the lag of a ramp.
func (l *level) now(s EstimatorSettings) float64 {
	if !l.isWarm(s) {
		return l.once
	}
	return min(max(2*l.once-l.twice, l.once/2), 2*l.once)
}

// trend returns by which part of itself the level changes in a second.
func (l *level) trend(s EstimatorSettings) float64 {
	if !l.isWarm(s) || l.once <= 0 {
		return 0
	}
	perRound := s.Weight / (1 - s.Weight) * (l.once - l.twice) / l.now(s)
	return perRound / s.Round.Seconds()
}

// isWarm reports whether the means have as many rounds as they remember.
func (l *level) isWarm(s EstimatorSettings) bool {
	return float64(l.rounds)*s.Weight >= 1 && s.Weight < 1
}

// add adds the level of a round; what is no positive number is skipped.
func (l *level) add(x float64, s EstimatorSettings) {
	if !isPositive(x) || x > maxRate {
		return
	}
	if l.isStep(x, s) {
		// The first round of a step has a part of the level before.
		after := l.far[1:]
		sum := 0.0
		for _, one := range after {
			sum += one
		}
		*l = level{once: sum / float64(len(after)), rounds: len(after)}
		l.twice = l.once
		return
	}
	l.rounds++
	weight := max(s.Weight, 1/float64(l.rounds))
	l.once += weight * (x - l.once)
	if !l.isWarm(s) {
		l.twice = l.once
		return
	}
	l.twice += s.Weight * (l.once - l.twice)
}

// isStep reports whether a level completes a step: a row of levels that are far off on one side. The
// farther off they are, the fewer it takes, and at least two.
func (l *level) isStep(x float64, s EstimatorSettings) bool {
	if l.rounds == 0 {
		return false
	}
	off := x/l.now(s) - 1
	side := 0
	switch {
	case off > s.Jump:
		side = 1
	case off < -s.Jump:
		side = -1
	}
	if side == 0 || side != l.side {
		l.far = nil
	}
	l.side = side
	if side == 0 {
		return false
	}
	l.far = append(l.far, x)
	sum := 0.0
	for _, one := range l.far {
		sum += math.Abs(one/l.now(s) - 1)
	}
	return len(l.far) >= 2 && sum >= s.Jump*float64(s.JumpRounds) || len(l.far) >= s.JumpRounds
}

// portion is an exponential mean of a share of time over about half a minute.
type portion struct {
	mean   float64
	rounds int
}

func (p *portion) add(x float64) {
	const weight = 0.3
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	p.rounds++
	p.mean += max(weight, 1/float64(p.rounds)) * (share(x) - p.mean)
}
