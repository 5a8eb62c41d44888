// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/allocation/model"
)

// maxObservations bounds the observations of a report, as allocation.MaxObservations.
const maxObservations = 64

// Bounds returns the batches that the job can train with. It returns false if the report shows no
// batch: then it has no model.
//
// A report without a batch is of a job that chooses its batch itself, in one pass. If all its
// measurements have one total batch, each number of replicas has this batch. Else each replica has
// the batch of the newest measurement.
func (r *Report) Bounds() (model.Bounds, bool) {
	if batch := r.batch(); batch != nil {
		most := cmp.Or(batch.Max, batch.Initial)
		return model.Bounds{
			Initial: batch.Initial, Max: most,
			MinAtomic: cmp.Or(batch.MinPerReplica, 1), MaxAtomic: cmp.Or(batch.MaxPerReplica, most),
			NoAccumulation: batch.NoAccumulation,
		}, true
	}
	measured := r.measured()
	if len(measured) == 0 {
		return model.Bounds{}, false
	}
	if total, is := sameTotal(measured); is {
		return model.Bounds{Initial: total, Max: total, MinAtomic: 1, MaxAtomic: total, NoAccumulation: true}, true
	}
	each := measured[len(measured)-1].Atomic
	return model.Bounds{Initial: each, Max: each * maxReplicas, MinAtomic: each, MaxAtomic: each, NoAccumulation: true}, true
}

// batch returns the batch of the report; nil if it has none.
func (r *Report) batch() *Batch {
	switch {
	case r == nil:
		return nil
	case r.Batch != nil:
		return r.Batch
	default:
		return r.adaptDL.batch()
	}
}

// Noise returns the noise of the job's gradients. Without a report of it, it returns false and the
// noise at which each sample is worth the same with any batch. Noise is relative to the
// initial batch, so it does not count without a batch.
func (r *Report) Noise() (model.Noise, bool) {
	switch {
	case r.batch() == nil:
	case r.Gradient != nil:
		return model.Noise{Sqr: r.Gradient.Sqr, Var: r.Gradient.Var}, true
	case r.GradParams != nil:
		return model.Noise{Sqr: r.GradParams.Norm, Var: r.GradParams.Var}, true
	}
	return model.Noise{Var: 1}, false
}

// Parameters returns the throughput that the job has fitted itself. It returns false if the report
// has measurements or has no parameters.
func (r *Report) Parameters() (model.Throughput, bool) {
	if r == nil || r.PerfParams == nil || len(r.Steps)+len(r.Throughput) > 0 {
		return model.Throughput{}, false
	}
	return r.PerfParams.throughput(), true
}

// MaxObserved returns the largest number of replicas that the job has trained with; 0 if the
// report shows none.
func (r *Report) MaxObserved() int {
	if r == nil {
		return 0
	}
	most := r.MaxProfiledReplicas
	for i := range r.Steps {
		most = max(most, r.Steps[i].Replicas)
	}
	for i := range r.Throughput {
		most = max(most, r.Throughput[i].Replicas)
	}
	return most
}

// Observations returns the measurements that a model is fitted to: the newest of each
// configuration, at most 64 of them, the newest. They are in the order of their configurations, so
// reports of the same measurements have the same observations.
func (r *Report) Observations() []model.Observation {
	measured := newest(r.measured())
	observations := make([]model.Observation, 0, len(measured))
	for i := range measured {
		compute := measured[i].computeAmong(measured)
		// The other passes of a step are of the same length as one that does not synchronize.
		step := measured[i].seconds - float64(measured[i].passes-1)*compute
		observations = append(observations, model.Observation{
			Nodes: measured[i].Nodes, Replicas: measured[i].Replicas, Atomic: measured[i].Atomic,
			Step: math.Max(step, compute), Accumulate: compute, Device: measured[i].device,
		})
	}
	return observations
}

// measurement is a step or a rate. Accumulation of the configuration is 0 for both, as equal passes
// have equal times.
type measurement struct {
	model.Config
	// seconds is the duration of all passes of a step, and the last one synchronizes.
	seconds float64
	passes  int
	// compute is the duration of a pass that does not synchronize; 0 if it is not measured.
	compute float64
	device  string
}

// measured returns the measurements of the report, the newest last.
func (r *Report) measured() []measurement {
	if r == nil {
		return nil
	}
	all := make([]measurement, 0, len(r.Steps)+len(r.Throughput))
	for _, step := range r.Steps {
		at := model.Config{Nodes: step.Nodes, Replicas: step.Replicas, Atomic: step.Samples}
		all = append(all, measurement{Config: at, seconds: step.Seconds, passes: 1, compute: step.ComputeSeconds, device: step.Device})
	}
	if len(all) > 0 {
		return all
	}
	unit := r.unit()
	for _, rate := range r.Throughput {
		passes := rate.Replicas * (rate.Accumulation + 1)
		m := measurement{Config: model.Config{Nodes: rate.Nodes, Replicas: rate.Replicas, Atomic: 1}, passes: rate.Accumulation + 1}
		if rate.Batch == 0 {
			m.seconds = unit * float64(passes) / rate.PerSecond
		} else {
			m.Atomic = (rate.Batch + passes - 1) / passes
			m.seconds = float64(rate.Batch) / rate.PerSecond
		}
		all = append(all, m)
	}
	return all
}

// unit returns how much a replica does in a pass where rates have no batch. Such a pass has one
// sample and takes about a second. The unit is a power of ten, so that it seldom changes.
func (r *Report) unit() float64 {
	fastest := 0.0
	for _, rate := range r.Throughput {
		fastest = math.Max(fastest, rate.PerSecond/float64(rate.Replicas))
	}
	return math.Pow10(int(math.Floor(math.Log10(fastest))))
}

// newest returns the last measurement of each configuration, at most maxObservations.
func newest(all []measurement) []measurement {
	var kept []measurement
	for i := len(all) - 1; i >= 0 && len(kept) < maxObservations; i-- {
		if !slices.ContainsFunc(kept, func(newer measurement) bool { return newer.Config == all[i].Config && newer.device == all[i].device }) {
			kept = append(kept, all[i])
		}
	}
	slices.SortFunc(kept, func(a, b measurement) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Atomic, b.Atomic), strings.Compare(a.device, b.device))
	})
	return kept
}

// computeAmong returns the duration of a pass that does not synchronize. If it is not measured, it
// is that of the measurement whose batch is the most similar, in proportion to the batch, and at
// most the mean pass. A single replica never synchronizes.
func (m *measurement) computeAmong(all []measurement) float64 {
	pass := m.seconds / float64(m.passes)
	if known, is := m.known(); is {
		return known
	}
	best, distance, isBestKnown := pass, math.Inf(1), false
	for i := range all {
		other := &all[i]
		if other.device != m.device {
			continue
		}
		compute, isKnown := other.known()
		if !isKnown {
			compute = other.seconds / float64(other.passes)
		}
		scale := float64(m.Atomic) / float64(other.Atomic)
		apart := math.Abs(math.Log(scale))
		isNearer := apart < distance || apart == distance && compute*scale < best
		if isKnown && !isBestKnown || isKnown == isBestKnown && isNearer {
			best, distance, isBestKnown = compute*scale, apart, isKnown
		}
	}
	return math.Min(best, pass)
}

// known returns the duration of a pass that does not synchronize, if the measurement shows it.
func (m *measurement) known() (float64, bool) {
	switch {
	case m.compute > 0:
		return m.compute, true
	case m.Replicas == 1:
		return m.seconds / float64(m.passes), true
	}
	return 0, false
}

// sameTotal returns the total batch that all measurements share, if they differ in replicas and in
// the batch of each replica. The batch of a replica is rounded up.
func sameTotal(all []measurement) (int, bool) {
	above, most, differ := 0, math.MaxInt, false
	for i := range all {
		above = max(above, all[i].Replicas*(all[i].Atomic-1))
		most = min(most, all[i].Replicas*all[i].Atomic)
		differ = differ || all[i].Replicas != all[0].Replicas && all[i].Atomic != all[0].Atomic
	}
	return most, differ && above < most
}
