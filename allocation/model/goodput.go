// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "math"

// Noise is what a job reports of its gradients: the squared norm of their mean and
// their variance, both at the initial batch size. Their ratio times the initial batch
// size is the gradient noise scale (McCandlish et al., 2018).
type Noise struct {
	Sqr, Var float64
}

// Gain returns how much further a step gets with scale times the initial batch.
func (n Noise) Gain(scale float64) float64 {
	denominator := n.Var/scale + n.Sqr
	if denominator <= 0 {
		return 1
	}
	return (n.Var + n.Sqr) / denominator
}

// Bounds are the batches that a job can train with, in samples.
type Bounds struct {
	// Initial is the batch that the job was tuned for; goodput counts its samples.
	Initial int
	// Max is the largest batch of a step.
	Max int
	// MinAtomic and MaxAtomic bound the samples per replica and pass.
	MinAtomic, MaxAtomic int
	// NoAccumulation says that a step has one pass.
	NoAccumulation bool
}

// candidates is the number of batches that Best compares.
const candidates = 50

// Split divides a batch among replicas and passes. A single replica with more than
// its initial batch accumulates at least once: one pass alone tells nothing of the
// variance of gradients.
func (b *Bounds) Split(batch float64, replicas int) (atomic, accumulation int) {
	local := batch / float64(replicas)
	if b.NoAccumulation {
		return int(math.Ceil(local - tiny)), 0
	}
	accumulation = int(math.Ceil(local/float64(b.MaxAtomic)-tiny)) - 1
	if replicas == 1 && local > float64(b.Initial)+tiny {
		accumulation = max(accumulation, 1)
	}
	return int(math.Ceil(local/float64(accumulation+1) - tiny)), accumulation
}

// Goodput predicts useful samples per second.
type Goodput struct {
	Throughput Throughput
	Noise      Noise
	Bounds     Bounds
}

// Of returns the goodput of a configuration.
func (g *Goodput) Of(c Config) float64 {
	scale := float64(c.Batch()) / float64(g.Bounds.Initial)
	return g.Throughput.Rate(c) * g.Noise.Gain(scale) / scale
}

// Best returns the configuration of greatest goodput of so many replicas on so many
// nodes, and its goodput. It is 0 where the replicas are too many for the largest batch.
func (g *Goodput) Best(nodes, replicas int) (Config, float64) {
	candidates := NewCandidates(&g.Throughput, &g.Bounds, nodes, replicas)
	return candidates.Best(g.Noise)
}

// Candidates are the batches that replicas could train with, and how long a step of
// each takes: what of Best does not depend on the gradient noise, which changes with
// each report.
type Candidates struct {
	nodes, replicas int
	initial         float64
	all             []candidate
}

type candidate struct {
	atomic, accumulation int
	seconds, scale       float64
}

// NewCandidates returns the batches of so many replicas on so many nodes: 50 of them in
// geometric steps from the least to the greatest, without those that round to the same.
func NewCandidates(t *Throughput, bounds *Bounds, nodes, replicas int) Candidates {
	c := Candidates{nodes: nodes, replicas: replicas, initial: float64(bounds.Initial)}
	least, most := float64(max(bounds.Initial, bounds.MinAtomic*replicas)), float64(bounds.Max)
	if least > most {
		return c
	}
	c.all = make([]candidate, 0, candidates)
	network, ratio := t.synchronize(nodes, replicas), math.Log(most/least)
	for i := range candidates {
		batch := least * math.Exp(ratio*float64(i)/(candidates-1))
		switch i {
		case 0:
			batch = least
		case candidates - 1:
			batch = most
		}
		atomic, accumulation := bounds.Split(batch, replicas)
		if atomic < bounds.MinAtomic || atomic > bounds.MaxAtomic {
			continue
		}
		if last := len(c.all) - 1; last >= 0 && c.all[last].atomic == atomic && c.all[last].accumulation == accumulation {
			continue
		}
		compute := t.accumulate(atomic)
		c.all = append(c.all, candidate{
			atomic: atomic, accumulation: accumulation,
			seconds: float64(accumulation)*compute + t.combine(compute, network),
			scale:   float64(replicas*atomic*(accumulation+1)) / c.initial,
		})
	}
	return c
}

// Best returns the configuration of greatest goodput at a gradient noise, and its
// goodput; 0 where there is none.
func (c *Candidates) Best(noise Noise) (Config, float64) {
	best, most := -1, 0.0
	for i := range c.all {
		if value := noise.Gain(c.all[i].scale) / c.all[i].seconds; value > most {
			best, most = i, value
		}
	}
	if best < 0 {
		return Config{}, 0
	}
	chosen := c.all[best]
	return Config{Nodes: c.nodes, Replicas: c.replicas, Atomic: chosen.atomic, Accumulation: chosen.accumulation}, most * c.initial
}
