// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
)

// curve is the goodput of a job by its placement.
type curve struct {
	// known is the model; nil for a job that has none.
	known *learned
	noise model.Noise
	// one is the goodput of one replica.
	one float64
	// observed is the largest number of replicas that was measured.
	observed int
	// crossings is how many times as long the network takes by the span; without any, all spans are alike.
	crossings model.Crossings
	// times multiplies the model's goodput: it is carried over from another type of devices. 0 is 1.
	times float64
	// isGuess reports whether the job has never measured the type of devices.
	isGuess bool
}

// scaled returns the curve on devices that are so many times as fast.
func (c *curve) scaled(times float64) curve {
	next := *c
	next.times, next.one, next.isGuess = cmp.Or(c.times, 1)*times, c.one*times, false
	return next
}

// prior is the exponent of the speed of jobs without a model: two replicas are 1.7 times
// as fast as one. It keeps jobs that report nothing from outbidding those that do.
const prior = 0.75

// at returns the goodput with so many replicas on so many nodes of a span; in units of one replica
// for jobs without a model.
func (c *curve) at(nodes, span, replicas int) float64 {
	switch {
	case replicas <= 0:
		// The other tasks run, without any elastic replica.
		return c.one / 2
	case c.known == nil:
		return math.Pow(float64(replicas), prior)
	}
	across := 1.0
	if nodes > 1 && c.crossings[span] > 0 {
		across = c.crossings[span]
	}
	return cmp.Or(c.times, 1) * c.known.at(placing{nodes, replicas, across}, c.noise)
}

// speed returns the goodput relative to that of one replica.
func (c *curve) speed(nodes, span, replicas int) float64 { return c.at(nodes, span, replicas) / c.one }

// goodput returns useful samples per second; 0 if they are unknown.
func (c *curve) goodput(nodes, span, replicas int) float64 {
	if c.known == nil {
		return 0
	}
	return c.at(nodes, span, replicas)
}

// placing is what the goodput of a model depends on: how many replicas on how many nodes, and how many times as long the network
// between them takes.
type placing struct {
	nodes, replicas int
	across          float64
}

// mostPlacings bounds what is kept of a model.
const mostPlacings = 1024

// learned is the model of a job or group, with what was computed of it. It depends on
// its content only, so that it saves time and never changes a result.
type learned struct {
	throughput model.Throughput
	bounds     model.Bounds
	candidates map[placing]*model.Candidates
	values     map[placing]float64
	noise      model.Noise
	// used is the last round that asked for it.
	used int
}

// at returns the goodput at a noise.
func (l *learned) at(key placing, noise model.Noise) float64 {
	if len(l.candidates) > mostPlacings {
		clear(l.candidates)
	}
	if noise != l.noise || len(l.candidates) == 0 {
		clear(l.values)
		l.noise = noise
	}
	if value, is := l.values[key]; is {
		return value
	}
	candidates := l.candidates[key]
	if candidates == nil {
		throughput := l.throughput.Across(key.across)
		made := model.NewCandidates(&throughput, &l.bounds, key.nodes, key.replicas)
		candidates = &made
		l.candidates[key] = candidates
	}
	_, value := candidates.Best(noise)
	l.values[key] = value
	return value
}

// cache has the models of the last rounds: one for each job, and the fits of groups.
type cache struct {
	round  int
	models map[any]*learned
	fits   map[string]*fit
}

// fit is a fitted throughput.
type fit struct {
	// given are the observations, rounded what counts of them.
	given, rounded []model.Observation
	throughput     model.Throughput
	crossings      model.Crossings
	used           int
}

func newCache() *cache {
	return &cache{models: map[any]*learned{}, fits: map[string]*fit{}}
}

// fitted returns the throughput that explains the observations, and how much longer the network takes across domains. The name
// only finds the last answer.
func (c *cache) fitted(name string, observations []model.Observation) (model.Throughput, model.Crossings) {
	last := c.fits[name]
	if last == nil || !slices.Equal(last.given, observations) {
		rounded := coarse(observations)
		if last == nil || !slices.Equal(last.rounded, rounded) {
			last = &fit{rounded: rounded}
			last.throughput, last.crossings = model.FitAcross(rounded)
			c.fits[name] = last
		}
		last.given = observations
	}
	last.used = c.round
	return last.throughput, last.crossings
}

// digits are the significant digits of measured times that count. Means of many steps
// change with each report, and a fit takes a millisecond.
const digits = 3

// perOctave is the number of batches between a batch and its double that count. A job that
// adapts its batch reports a new one with each change of its noise.
const perOctave = 4

// coarse returns observations with their times rounded, and of similar batches of a
// placement the smallest one.
func coarse(observations []model.Observation) []model.Observation {
	type similar struct{ nodes, replicas, octave, span int }
	smallest := map[similar]int{}
	for i, o := range observations {
		key := similar{o.Nodes, o.Replicas, int(perOctave * math.Log2(float64(o.Atomic))), o.Span}
		if at, is := smallest[key]; !is || o.Atomic < observations[at].Atomic {
			smallest[key] = i
		}
	}
	var rounded []model.Observation
	for _, i := range slices.Sorted(maps.Values(smallest)) {
		o := observations[i]
		o.Step, o.Accumulate = round(o.Step), round(o.Accumulate)
		rounded = append(rounded, o)
	}
	return rounded
}

func round(value float64) float64 {
	if value <= 0 {
		return value
	}
	unit := math.Pow(10, math.Floor(math.Log10(value))+1-digits)
	return math.Round(value/unit) * unit
}

// model returns the model of a throughput and bounds.
func (c *cache) model(name any, throughput model.Throughput, bounds model.Bounds) *learned {
	last := c.models[name]
	if last == nil || last.throughput != throughput || last.bounds != bounds {
		last = &learned{
			throughput: throughput, bounds: bounds, candidates: map[placing]*model.Candidates{}, values: map[placing]float64{},
		}
		c.models[name] = last
	}
	last.used = c.round
	return last
}

// next begins a round, and forgets what the last one did not ask for.
func (c *cache) next() {
	for name, known := range c.models {
		if known.used < c.round {
			delete(c.models, name)
		}
	}
	for name, known := range c.fits {
		if known.used < c.round {
			delete(c.fits, name)
		}
	}
	c.round++
}

// contradiction is by which factor the time of a step must differ from the group's to contradict it. A job makes its
// group forget after five reports in a row over five minutes: a slow start or a busy neighbour is shorter.
const (
	contradiction = 1.25
	forgetReports = 5
	forgetAfter   = 5 * time.Minute
)

// teach adds what a job has observed to the history of its group. A group forgets what was measured before its program, its
// devices or its network have changed.
func teach(group *allocation.Group, job *allocation.Job, observations []model.Observation) {
	if job.Created.Before(group.Since) || doubts(group, job, observations) {
		return
	}
	for _, o := range observations {
		switch known := measuredAt(group, o); {
		case known != nil && known.Span == 0:
			known.Span = o.Span
		case known == nil && len(group.Observations) < allocation.MaxObservations:
			group.Observations = append(group.Observations, o)
		}
	}
	group.MaxObserved = max(group.MaxObserved, job.Report.MaxObserved())
	if len(observations) == 0 {
		return
	}
	if noise, _ := job.Report.Noise(); group.Noise == nil {
		group.Noise = &noise
	}
	if bounds, is := job.Report.Bounds(); is && (group.Bounds == nil || *group.Bounds != bounds) {
		group.Bounds = &bounds
	}
}

// measuredAt returns what a group knows of the configuration of an observation; nil if it knows nothing. Where the span of
// either is not known, the one of the most similar time counts, but an observation of a known span does not contradict another
// one.
func measuredAt(group *allocation.Group, o model.Observation) *model.Observation {
	var best *model.Observation
	for i := range group.Observations {
		known := &group.Observations[i]
		if known.Nodes != o.Nodes || known.Replicas != o.Replicas || known.Atomic != o.Atomic || known.Device != o.Device {
			continue
		}
		if known.Span == o.Span {
			return known
		}
		if o.Span == 0 || known.Span == 0 && !contradicts(known, &o) {
			if best == nil || unlike(known, &o) < unlike(best, &o) {
				best = known
			}
		}
	}
	return best
}

// unlike returns the logarithm of the factor between the times of two steps.
func unlike(a, b *model.Observation) float64 { return math.Abs(math.Log(a.Step / b.Step)) }

func contradicts(known, o *model.Observation) bool { return unlike(known, o) > math.Log(contradiction) }

// doubts counts the reports in a row by which a job contradicts its group. After enough of them the group forgets, and
// doubts returns false, so that the job teaches it again.
func doubts(group *allocation.Group, job *allocation.Job, observations []model.Observation) bool {
	if !slices.ContainsFunc(observations, func(o model.Observation) bool {
		known := measuredAt(group, o)
		return known != nil && contradicts(known, &o)
	}) {
		delete(group.Doubts, job.Name)
		return false
	}
	doubt, has := group.Doubts[job.Name]
	if !has {
		doubt.From = job.ReportedAt
	}
	if !has || job.ReportedAt.After(doubt.Last) {
		doubt.Last, doubt.Reports = job.ReportedAt, doubt.Reports+1
	}
	if doubt.Reports >= forgetReports && doubt.Last.Sub(doubt.From) >= forgetAfter {
		group.Since, group.Doubts = job.Created, nil
		group.Observations, group.Noise, group.MaxObserved = nil, nil, 0
		return false
	}
	if group.Doubts == nil {
		group.Doubts = map[types.NamespacedName]allocation.Doubt{}
	}
	group.Doubts[job.Name] = doubt
	return true
}

// resolve drops the doubts of jobs that are gone.
func resolve(groups map[string]*allocation.Group, jobs []*allocation.Job) {
	present := make(map[types.NamespacedName]bool, len(jobs))
	for _, job := range jobs {
		present[job.Name] = true
	}
	for _, group := range groups {
		maps.DeleteFunc(group.Doubts, func(name types.NamespacedName, _ allocation.Doubt) bool { return !present[name] })
	}
}

// believes reports whether the observations of a group are worth more than those of a job.
func believes(group *allocation.Group, job *allocation.Job, own []model.Observation) bool {
	if group == nil || len(group.Observations) == 0 {
		return false
	}
	_, doubts := group.Doubts[job.Name]
	return len(own) == 0 || !doubts && !job.Created.Before(group.Since)
}

// knowledge is what a job and its group have measured.
type knowledge struct {
	observations []model.Observation
	name         string
	observed     int
	bounds       model.Bounds
	isBounded    bool
	noise        model.Noise
}

// knowledgeOf returns what is known of a job by its own report and observations, and the history of its group.
func knowledgeOf(job *allocation.Job, group *allocation.Group, own []model.Observation) *knowledge {
	k := &knowledge{observations: own, name: "job/" + job.Name.String(), observed: job.Report.MaxObserved()}
	k.bounds, k.isBounded = job.Report.Bounds()
	k.noise, _ = job.Report.Noise()
	if !believes(group, job, own) {
		return k
	}
	k.observations, k.name = group.Observations, "group/"+job.Group
	k.observed = max(k.observed, group.MaxObserved)
	if len(own) == 0 && group.Noise != nil {
		k.noise = *group.Noise
	}
	if !k.isBounded && group.Bounds != nil {
		k.bounds, k.isBounded = *group.Bounds, true
	}
	return k
}

// curveOf returns the goodput of a job on a type of devices, by what was measured there.
func (c *cache) curveOf(job *allocation.Job, k *knowledge, observations []model.Observation, device string) curve {
	of := curve{one: 1, observed: k.observed}
	var throughput model.Throughput
	parameters, isFitted := job.Report.Parameters()
	switch {
	case !k.isBounded:
		return of
	case isFitted:
		throughput = parameters
	case len(observations) > 0:
		throughput, of.crossings = c.fitted(k.name+"@"+device, observations)
	default:
		return of
	}
	known := c.model(deviceKey{job.Name, device}, throughput, k.bounds)
	if one := known.at(placing{1, 1, 1}, k.noise); one > 0 {
		of.known, of.noise, of.one = known, k.noise, one
	}
	return of
}

// deviceKey finds the model of a job on a type of devices.
type deviceKey struct {
	job    types.NamespacedName
	device string
}
