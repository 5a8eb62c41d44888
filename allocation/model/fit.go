// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"
	"slices"
)

// Observation is a measured step: how it ran and how long it took, in seconds.
type Observation struct {
	Nodes, Replicas, Atomic int
	// Step is the time of a pass that synchronizes, Accumulate of one that does not.
	Step, Accumulate float64
}

// parameters is the number of parameters of Throughput.
const parameters = 7

// The places of the parameters in a vector.
const (
	alphaC = iota
	betaC
	alphaN
	betaN
	alphaR
	betaR
	gamma
)

// vector holds the logarithms of the first six parameters, and Gamma.
type vector [parameters]float64

// The range of the parameters in a vector.
var (
	lower = vector{math.Log(tiny), math.Log(tiny), math.Log(tiny), math.Log(tiny), math.Log(tiny), math.Log(tiny), 1}
	upper = vector{12, 12, 12, 12, 12, 12, 10}
)

func (v *vector) throughput() Throughput {
	return Throughput{
		AlphaC: math.Exp(v[alphaC]), BetaC: math.Exp(v[betaC]), AlphaN: math.Exp(v[alphaN]), BetaN: math.Exp(v[betaN]),
		AlphaR: math.Exp(v[alphaR]), BetaR: math.Exp(v[betaR]), Gamma: v[gamma],
	}
}

func vectorOf(t *Throughput) vector {
	var v vector
	for i, value := range []float64{t.AlphaC, t.BetaC, t.AlphaN, t.BetaN, t.AlphaR, t.BetaR} {
		v[i] = math.Log(math.Max(value, tiny))
	}
	v[gamma] = t.Gamma
	return v
}

// good is a loss at which another start gains nothing: errors of half a percent.
const good = 5e-3

// Fit returns the parameters that explain the observations best: the least sum of the
// root mean squared errors of the logarithms of both times, with a preference for
// little overlap and for networks that scale (AdaptDL, adaptdl/goodput.py,
// fit_perf_params). What no observation shows is fixed to an optimistic value, so
// that a job is tried with more replicas. last is the fit so far, nil for none.
// There must be an observation.
func Fit(observations []Observation, last *Throughput) Throughput {
	start := Throughput{AlphaC: 0.1, BetaC: 0.01, AlphaN: 0.1, BetaN: 0.01, AlphaR: 0.1, BetaR: 0.01, Gamma: 1.001}
	overlapping := start
	overlapping.Gamma = 2.5
	starts := []Throughput{start, overlapping}
	if last != nil {
		starts = []Throughput{*last, start}
	}
	fixed := fixedBy(observations)
	problem := newProblem(observations)
	var best vector
	least := math.Inf(1)
	for i := range starts {
		v := vectorOf(&starts[i])
		for parameter, value := range fixed {
			if !math.IsNaN(value) {
				v[parameter] = value
				problem.isFixed[parameter] = true
			}
		}
		if value := problem.minimize(&v); value < least {
			best, least = v, value
		}
		if least < good {
			break
		}
	}
	t := best.throughput()
	if !slices.ContainsFunc(observations, func(o Observation) bool { return o.Nodes > 1 }) {
		// A network between nodes is not faster than within one.
		t.AlphaN, t.BetaN = math.Max(t.AlphaN, 1.1*t.AlphaR), math.Max(t.BetaN, 1.1*t.BetaR)
	}
	return t
}

// fixedBy returns the values of the parameters that the observations say nothing
// of, and NaN for the others.
func fixedBy(observations []Observation) vector {
	fixed := vector{}
	for i := range fixed {
		fixed[i] = math.NaN()
	}
	sum, sameAtomic, severalNodes, severalOnOne, beyondTwo := 0.0, true, false, false, false
	for _, o := range observations {
		sum += o.Accumulate
		sameAtomic = sameAtomic && o.Atomic == observations[0].Atomic
		severalNodes = severalNodes || o.Nodes > 1
		severalOnOne = severalOnOne || o.Nodes == 1 && o.Replicas > 1
		beyondTwo = beyondTwo || o.Replicas > 2
	}
	if sameAtomic {
		fixed[alphaC] = math.Log(math.Max(sum/float64(len(observations))/2, tiny))
	}
	if !severalNodes {
		fixed[alphaN], fixed[betaN] = math.Log(tiny), math.Log(tiny)
	}
	if !severalOnOne {
		fixed[alphaR], fixed[betaR] = math.Log(tiny), math.Log(tiny)
	}
	if !beyondTwo {
		fixed[betaN], fixed[betaR] = math.Log(tiny), math.Log(tiny)
	}
	return fixed
}

// problem is what Fit minimizes.
type problem struct {
	observations []logged
	isFixed      [parameters]bool
}

// logged is an observation with the logarithms of its times.
type logged struct {
	Observation
	logStep, logAccumulate float64
}

func newProblem(observations []Observation) *problem {
	p := &problem{observations: make([]logged, len(observations))}
	for i, o := range observations {
		p.observations[i] = logged{Observation: o, logStep: math.Log(o.Step), logAccumulate: math.Log(o.Accumulate)}
	}
	return p
}

// value returns the loss at a vector, and its gradient.
func (p *problem) value(v *vector) (loss float64, gradient vector) {
	t := v.throughput()
	count := float64(len(p.observations))
	var squares1, squares2 float64
	var by1, by2 vector
	for i := range p.observations {
		o := &p.observations[i]
		compute, network := t.accumulate(o.Atomic), t.synchronize(o.Nodes, o.Replicas)
		lnC, lnN := math.Log(compute), math.Log(network)
		e1 := lnC - o.logAccumulate
		squares1 += e1 * e1
		by1[alphaC] += e1 * t.AlphaC / compute
		by1[betaC] += e1 * t.BetaC * float64(o.Atomic) / compute

		// The larger power is taken out, so that powers neither overflow nor vanish.
		larger, powC, powN := lnC, 1.0, 1.0
		if lnC > lnN {
			powN = math.Exp(t.Gamma * (lnN - lnC))
		} else {
			larger, powC = lnN, math.Exp(t.Gamma*(lnC-lnN))
		}
		sum := powC + powN
		logStep := larger + math.Log(sum)/t.Gamma
		e2 := logStep - o.logStep
		squares2 += e2 * e2
		// d logStep / d ln(compute) and d ln(network) are the shares of both powers.
		shareC, shareN := powC/sum, powN/sum
		by2[alphaC] += e2 * shareC * t.AlphaC / compute
		by2[betaC] += e2 * shareC * t.BetaC * float64(o.Atomic) / compute
		beyond := math.Max(float64(o.Replicas-2), tiny)
		switch {
		case o.Nodes > 1:
			by2[alphaN] += e2 * shareN * t.AlphaN / network
			by2[betaN] += e2 * shareN * t.BetaN * beyond / network
		case o.Replicas > 1:
			by2[alphaR] += e2 * shareN * t.AlphaR / network
			by2[betaR] += e2 * shareN * t.BetaR * beyond / network
		}
		by2[gamma] += e2 * ((shareC*lnC + shareN*lnN) - logStep) / t.Gamma
	}
	// The small addend keeps the gradient finite at a perfect fit.
	rmse1, rmse2 := math.Sqrt(squares1/count+1e-14), math.Sqrt(squares2/count+1e-14)
	for i := range gradient {
		gradient[i] = by1[i]/(count*rmse1) + by2[i]/(count*rmse2)
	}
	loss = rmse1 + rmse2 + 1e-3*(t.Gamma-1)*(t.Gamma-1)
	gradient[gamma] += 2e-3 * (t.Gamma - 1)
	for _, pair := range [...][3]float64{{t.BetaN / t.AlphaN, alphaN, betaN}, {t.BetaR / t.AlphaR, alphaR, betaR}} {
		square := 1e-2 * pair[0] * pair[0]
		loss += square
		gradient[int(pair[1])] -= 2 * square
		gradient[int(pair[2])] += 2 * square
	}
	for i, is := range p.isFixed {
		if is {
			gradient[i] = 0
		}
	}
	return loss, gradient
}
