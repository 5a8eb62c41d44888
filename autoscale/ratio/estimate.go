// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ratio

import (
	"math"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const (
	// currentFor is how long the sums of a di-server describe the present, or twice the time between their last
	// two changes: workers that report when a step ends are silent for as long as a step.
	currentFor = 90 * time.Second
	// maxSilence bounds that.
	maxSilence = 30 * time.Minute
)

// EstimatorSettings are the constants of an Estimator. A value that is not positive has its default.
type EstimatorSettings struct {
	// Round is the time between two writes of a di-server; 20 s. What arrives in a round is one level.
	Round time.Duration
	// Weight is the weight of a round in the exponential means; 0.14.
	Weight float64
	// Jump is by how much a level must differ from the mean to be a step; 0.25. After JumpRounds
	// such levels in a row, on one side, the mean starts again from them; 2.
	Jump       float64
	JumpRounds int
}

// DefaultEstimator returns the constants that the figures of docs/ratio.md hold for.
func DefaultEstimator() EstimatorSettings {
	return EstimatorSettings{Round: 20 * time.Second, Weight: 0.14, Jump: 0.25, JumpRounds: 2}
}

// Roles says what the roles of reports are.
type Roles interface {
	// Producer returns the task of a producer's role; empty for any other role.
	Producer(role string) string
	// IsConsumer reports whether a role is that of the consumer.
	IsConsumer(role string) bool
	// Consumers returns how many replicas the consumer has; 0 is unknown.
	Consumers() int32
}

// Estimator turns the sums that di-servers write to the status of a job into a measurement. It is not safe for
// concurrent use.
type Estimator struct {
	settings EstimatorSettings
	sources  map[sourceKey]*source
	// closedAt is when the last round closed.
	closedAt time.Time
	// produced and consumed are the capacities, of all producers and of each task.
	produced, consumed level
	tasks              map[string]*level
	// blocked and starved are shares of time.
	blocked, starved portion
}

// sourceKey identifies the sums of a role at a di-server.
type sourceKey struct{ server, role string }

// source is what a di-server wrote last about a role, and what it counted since.
type source struct {
	last v2alpha1.RoleRates
	// changedAt is when they changed last by the clock of this process, and every the time since the change before.
	changedAt time.Time
	every     time.Duration
	// work is since the last round in which there were samples, and time since the last one in which workers had
	// worked or waited: a step or an episode may take many rounds, and counts when it ends.
	work work
	time waiting
	// hasMoved reports whether workers have worked or waited in this round.
	hasMoved bool
}

// isCurrent reports whether the current values of an item describe the present.
func (s *source) isCurrent(entry *v2alpha1.RoleRates, now time.Time) bool {
	if entry.Reporters <= 0 {
		return false
	}
	silent := now.Sub(entry.UpdatedAt.Time)
	if s != nil {
		// The clock of the di-server may be ahead.
		silent = max(silent, now.Sub(s.changedAt))
	}
	if silent <= currentFor {
		return true
	}
	return s != nil && now.Sub(s.changedAt) <= min(2*s.every, maxSilence)
}

// work is samples and the busy seconds that they took.
type work struct{ samples, busy float64 }

func (w *work) add(other work) {
	w.samples += other.samples
	w.busy += other.busy
}

func (w work) capacity() float64 { return w.samples / w.busy }

// waiting is seconds of waiting, and all seconds.
type waiting struct{ waited, elapsed float64 }

func (w *waiting) add(other waiting) {
	w.waited += other.waited
	w.elapsed += other.elapsed
}

func (w waiting) share() float64 { return w.waited / w.elapsed }

// NewEstimator returns an estimator that starts with the capacities of a state.
func NewEstimator(settings EstimatorSettings, state State) *Estimator {
	e := &Estimator{settings: settings.completed(), sources: map[sourceKey]*source{}, tasks: map[string]*level{}}
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
	return s
}

// Clone returns an estimator that knows the same and learns separately.
func (e *Estimator) Clone() *Estimator {
	clone := *e
	clone.sources, clone.tasks = make(map[sourceKey]*source, len(e.sources)), make(map[string]*level, len(e.tasks))
	for key, known := range e.sources {
		copied := *known
		clone.sources[key] = &copied
	}
	clone.produced, clone.consumed = e.produced.clone(), e.consumed.clone()
	for task, capacity := range e.tasks {
		copied := capacity.clone()
		clone.tasks[task] = &copied
	}
	return &clone
}

// Learn counts what workers have reported since the last call.
func (e *Estimator) Learn(rates []v2alpha1.RoleRates, roles Roles, now time.Time) {
	present := make(map[sourceKey]bool, len(rates))
	isNew := false
	for i := range rates {
		key := sourceKey{rates[i].Server, rates[i].Role}
		present[key] = true
		isNew = e.count(key, &rates[i], now) || isNew
	}
	for key := range e.sources {
		if !present[key] {
			delete(e.sources, key)
		}
	}
	// Several di-servers write at different times. What arrives within most of a round belongs to it.
	if isNew && !now.Before(e.closedAt.Add(e.settings.Round*3/4)) {
		e.closedAt = now
		e.closeRound(rates, roles)
	}
}

// count counts what an item has gained, and reports whether it has gained any.
func (e *Estimator) count(key sourceKey, entry *v2alpha1.RoleRates, now time.Time) bool {
	known := e.sources[key]
	if known == nil {
		known = &source{last: *entry, changedAt: now}
		e.sources[key] = known
		// Old sums of an unknown di-server are history. Young ones are the start of the job.
		if entry.ReportedMilliseconds > currentFor.Milliseconds()*int64(max(entry.Reporters, 1)) {
			return false
		}
		known.last = v2alpha1.RoleRates{}
	}
	last := known.last
	if !entry.UpdatedAt.After(last.UpdatedAt.Time) {
		return false
	}
	known.last = *entry
	known.every, known.changedAt = now.Sub(known.changedAt), now
	elapsed := entry.ReportedMilliseconds - last.ReportedMilliseconds
	samples, busy := entry.Samples-last.Samples, entry.BusyMilliseconds-last.BusyMilliseconds
	waited := entry.BlockedMilliseconds - last.BlockedMilliseconds + entry.StarvedMilliseconds - last.StarvedMilliseconds
	if elapsed < 0 || samples < 0 || busy < 0 || waited < 0 {
		return false // the sums started again
	}
	fresh := float64(samples)
	if entry.ReplayRatioThousandths > 0 {
		fresh *= 1000 / float64(entry.ReplayRatioThousandths)
	}
	known.work.add(work{fresh, float64(busy) / 1000})
	known.time.add(waiting{float64(waited) / 1000, float64(elapsed) / 1000})
	known.hasMoved = known.hasMoved || busy > 0 || waited > 0
	return true
}

// closeRound adds what was counted to the means.
func (e *Estimator) closeRound(rates []v2alpha1.RoleRates, roles Roles) {
	var produced, consumed work
	var blocked, starved waiting
	tasks := map[string]work{}
	for i := range rates {
		one := e.sources[sourceKey{rates[i].Server, rates[i].Role}]
		task, isConsumer := roles.Producer(rates[i].Role), roles.IsConsumer(rates[i].Role)
		done := work{}
		if one.work.samples > 0 && one.work.busy > 0 {
			done, one.work = one.work, work{}
		}
		spent := waiting{}
		if one.hasMoved {
			spent, one.time, one.hasMoved = one.time, waiting{}, false
		}
		switch {
		case isConsumer:
			consumed.add(done)
			starved.add(spent)
		case task != "":
			produced.add(done)
			blocked.add(spent)
			of := tasks[task]
			of.add(done)
			tasks[task] = of
		}
	}
	e.produced.add(produced.capacity(), e.settings)
	for task, of := range tasks {
		if e.tasks[task] == nil {
			e.tasks[task] = &level{}
		}
		e.tasks[task].add(of.capacity(), e.settings)
	}
	e.consumed.add(consumed.capacity()*e.reporting(rates, roles, e.closedAt).workers, e.settings)
	e.blocked.add(blocked.share())
	e.starved.add(starved.share())
}

// consumers are the workers of the consumer that report. A worker whose reports move to another di-server
// is among the reporters of both for some time, so share is the part of the reporters that exists.
type consumers struct{ workers, share float64 }

func (e *Estimator) reporting(rates []v2alpha1.RoleRates, roles Roles, now time.Time) consumers {
	reporters := 0.0
	for i := range rates {
		if roles.IsConsumer(rates[i].Role) && e.isCurrent(&rates[i], now) {
			reporters += float64(rates[i].Reporters)
		}
	}
	workers := reporters
	if most := float64(roles.Consumers()); most > 0 {
		workers = min(workers, most)
	}
	return consumers{workers, workers / max(reporters, 1)}
}

func (e *Estimator) isCurrent(entry *v2alpha1.RoleRates, now time.Time) bool {
	return e.sources[sourceKey{entry.Server, entry.Role}].isCurrent(entry, now)
}

// Measure returns what the sums say at a time. Its pools are those of the tasks. The caller knows their sizes.
func (e *Estimator) Measure(rates []v2alpha1.RoleRates, roles Roles, tasks []string, now time.Time) Measurement {
	m := Measurement{
		ProducerCapacity: e.produced.now(e.settings), ConsumerCapacity: e.consumed.now(e.settings),
		ProducerTrend: e.produced.trend(e.settings), ConsumerTrend: e.consumed.trend(e.settings),
		Surge:   max(1, e.consumed.last(e.settings)/e.produced.last(e.settings)),
		Blocked: e.blocked.mean, Starved: e.starved.mean, BlockedLast: e.blocked.last, StarvedLast: e.starved.last, Pools: make([]PoolSize, len(tasks)),
	}
	for i, task := range tasks {
		if of := e.tasks[task]; of != nil {
			m.Pools[i].Capacity = of.now(e.settings)
		}
	}
	part := e.reporting(rates, roles, now).share
	for i := range rates {
		entry := &rates[i]
		switch {
		case !e.isCurrent(entry, now):
		case roles.IsConsumer(entry.Role):
			m.Batch += part * float64(entry.BatchSamples)
			m.Queue += part * float64(entry.Queue)
			m.QueueCapacity += part * float64(entry.QueueCapacity)
			m.MaxStaleness = max(m.MaxStaleness, float64(entry.MaxStaleness))
		case roles.Producer(entry.Role) != "":
			m.InFlight += float64(entry.InFlight)
		}
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

func (l *level) clone() level {
	clone := *l
	clone.far = slices.Clone(l.far)
	return clone
}

// now returns the level without the lag of a ramp.
func (l *level) now(s EstimatorSettings) float64 {
	if !l.isWarm(s) {
		return l.once
	}
	return min(max(2*l.once-l.twice, l.once/2), 2*l.once)
}

// last returns by which factor the last round differs from the level if it may begin a step, or else 1.
func (l *level) last(s EstimatorSettings) float64 {
	if len(l.far) == 0 || l.once <= 0 {
		return 1
	}
	return l.far[len(l.far)-1] / l.now(s)
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
	mean, last float64
	rounds     int
}

func (p *portion) add(x float64) {
	const weight = 0.3
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return
	}
	p.rounds++
	p.last = share(x)
	p.mean += max(weight, 1/float64(p.rounds)) * (share(x) - p.mean)
}
