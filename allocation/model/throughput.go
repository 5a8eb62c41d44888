// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "math"

// Throughput predicts the time of a training step by seven parameters. A step
// computes gradients (T_acc) and synchronizes them over the network (T_net):
//
//	T_acc = AlphaC + BetaC*m                            m: samples per replica and pass
//	T_net = AlphaN + BetaN*max(replicas-2, tiny)        replicas on several nodes
//	      = AlphaR + BetaR*max(replicas-2, tiny)        several replicas on one node
//	T_opt = (T_acc^Gamma + T_net^Gamma)^(1/Gamma)       Gamma: how far both overlap
//
// Times are in seconds. A step with accumulation adds T_acc for each further pass.
type Throughput struct {
	AlphaC, BetaC float64
	AlphaN, BetaN float64
	AlphaR, BetaR float64
	// Gamma is from 1 (no overlap) to 10 (T_opt is about the larger of both).
	Gamma float64
}

// tiny stands for what takes no time, so that logarithms exist.
const tiny = 1e-8

// Config is how a job runs: its placement and its batch.
type Config struct {
	// Nodes is the number of nodes that the replicas are on.
	Nodes int
	// Replicas is the number of replicas.
	Replicas int
	// Atomic is the number of samples per replica and pass.
	Atomic int
	// Accumulation is the number of passes before the one that synchronizes.
	Accumulation int
}

// Batch returns the samples of a step.
func (c Config) Batch() int { return c.Replicas * c.Atomic * (c.Accumulation + 1) }

// accumulate returns the seconds of a pass that does not synchronize.
func (t *Throughput) accumulate(atomic int) float64 { return t.AlphaC + t.BetaC*float64(atomic) }

// synchronize returns the seconds that the network takes.
func (t *Throughput) synchronize(nodes, replicas int) float64 {
	beyond := math.Max(float64(replicas-2), tiny)
	switch {
	case nodes > 1:
		return t.AlphaN + t.BetaN*beyond
	case replicas > 1:
		return t.AlphaR + t.BetaR*beyond
	}
	return tiny + tiny*beyond
}

// combine returns the seconds of a pass that synchronizes.
func (t *Throughput) combine(compute, network float64) float64 {
	// The larger is taken out, so that powers neither overflow nor vanish.
	larger, smaller := math.Max(compute, network), math.Min(compute, network)
	return larger * math.Exp(math.Log1p(math.Pow(smaller/larger, t.Gamma))/t.Gamma)
}

// StepTime returns the seconds of a step.
func (t *Throughput) StepTime(c Config) float64 {
	compute := t.accumulate(c.Atomic)
	return float64(c.Accumulation)*compute + t.combine(compute, t.synchronize(c.Nodes, c.Replicas))
}

// Rate returns the samples per second.
func (t *Throughput) Rate(c Config) float64 { return float64(c.Batch()) / t.StepTime(c) }
