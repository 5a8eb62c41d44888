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
	// Device is the type of the devices that it ran on; empty if the job does not name it.
	Device string
	// Span is one more than the levels of the topology that its nodes crossed; 0 if that is not known. It says nothing of one
	// node.
	Span int
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
	networks     []network
	isFixed      [parameters]bool
	// at is the vector of the last loss, t its throughput. rmse1 and rmse2 are the errors there.
	at           vector
	t            Throughput
	rmse1, rmse2 float64
}

// network is a placement of observations, and how long its network takes at the vector of the last
// loss.
type network struct {
	nodes, replicas int
	beyond          float64
	seconds, log    float64
}

// logged is an observation with the logarithms of its times.
type logged struct {
	atomic                 float64
	network                int
	logStep, logAccumulate float64
	// What follows is at the vector of the last loss, for its gradient. compute and logCompute are the
	// pass that does not synchronize, powC and powN its power and that of the network, predicted the
	// logarithm of the step, and e1 and e2 the errors.
	compute, logCompute, powC, powN, predicted, e1, e2 float64
}

func newProblem(observations []Observation) *problem {
	p := &problem{observations: make([]logged, len(observations))}
	for i := range p.at {
		p.at[i] = math.NaN()
	}
	for i, o := range observations {
		at := slices.IndexFunc(p.networks, func(n network) bool { return n.nodes == o.Nodes && n.replicas == o.Replicas })
		if at < 0 {
			at = len(p.networks)
			p.networks = append(p.networks, network{nodes: o.Nodes, replicas: o.Replicas, beyond: math.Max(float64(o.Replicas-2), tiny)})
		}
		p.observations[i] = logged{atomic: float64(o.Atomic), network: at, logStep: math.Log(o.Step), logAccumulate: math.Log(o.Accumulate)}
	}
	return p
}

// moveTo sets the throughput and the networks at a vector. Most coordinates are fixed, and their
// exponentials stay.
func (p *problem) moveTo(v *vector) {
	for i, parameter := range [...]*float64{&p.t.AlphaC, &p.t.BetaC, &p.t.AlphaN, &p.t.BetaN, &p.t.AlphaR, &p.t.BetaR} {
		if v[i] != p.at[i] {
			*parameter = math.Exp(v[i])
		}
	}
	p.t.Gamma, p.at = v[gamma], *v
	for i := range p.networks {
		n := &p.networks[i]
		n.seconds = p.t.synchronize(n.nodes, n.replicas)
		n.log = math.Log(n.seconds)
	}
}

// loss returns the loss at a vector. It may return infinity if the loss is more than a bound. Most vectors are rejected by
// their loss, often by far, so the gradient is apart.
func (p *problem) loss(v *vector, bound float64) float64 {
	p.moveTo(v)
	var squares1, squares2 float64
	count := float64(len(p.observations))
	// The loss is at least either error. The factor is for what rounding adds.
	most := bound * bound * count * (1 + 1e-9)
	for i := range p.observations {
		if squares1 > most || squares2 > most {
			return math.Inf(1)
		}
		o := &p.observations[i]
		o.compute = p.t.AlphaC + p.t.BetaC*o.atomic
		lnC, lnN := math.Log(o.compute), p.networks[o.network].log
		o.logCompute = lnC
		o.e1 = lnC - o.logAccumulate
		squares1 += o.e1 * o.e1

		// The larger power is taken out, so that powers neither overflow nor vanish.
		larger := lnC
		o.powC, o.powN = 1, 1
		if lnC > lnN {
			o.powN = math.Exp(p.t.Gamma * (lnN - lnC))
		} else {
			larger, o.powC = lnN, math.Exp(p.t.Gamma*(lnC-lnN))
		}
		o.predicted = larger
		if sum := o.powC + o.powN; sum != 1 {
			o.predicted += math.Log(sum) / p.t.Gamma
		}
		o.e2 = o.predicted - o.logStep
		squares2 += o.e2 * o.e2
	}
	// The small addend keeps the gradient finite at a perfect fit.
	p.rmse1, p.rmse2 = math.Sqrt(squares1/count+1e-14), math.Sqrt(squares2/count+1e-14)
	penalties := p.penalties()
	return p.rmse1 + p.rmse2 + 1e-3*(p.t.Gamma-1)*(p.t.Gamma-1) + penalties[0] + penalties[1]
}

// penalties prefer networks that scale: one between nodes, one within a node.
func (p *problem) penalties() [2]float64 {
	between, within := p.t.BetaN/p.t.AlphaN, p.t.BetaR/p.t.AlphaR
	return [2]float64{1e-2 * between * between, 1e-2 * within * within}
}

// gradient returns the gradient at the vector of the last loss.
func (p *problem) gradient() (gradient vector) {
	var by1, by2 vector
	for i := range p.observations {
		o := &p.observations[i]
		n := &p.networks[o.network]
		by1[alphaC] += o.e1 * p.t.AlphaC / o.compute
		by1[betaC] += o.e1 * p.t.BetaC * o.atomic / o.compute

		// d predicted / d ln(compute) and d ln(network) are the shares of both powers.
		sum := o.powC + o.powN
		shareC, shareN := o.powC/sum, o.powN/sum
		by2[alphaC] += o.e2 * shareC * p.t.AlphaC / o.compute
		by2[betaC] += o.e2 * shareC * p.t.BetaC * o.atomic / o.compute
		switch {
		case n.nodes > 1:
			by2[alphaN] += o.e2 * shareN * p.t.AlphaN / n.seconds
			by2[betaN] += o.e2 * shareN * p.t.BetaN * n.beyond / n.seconds
		case n.replicas > 1:
			by2[alphaR] += o.e2 * shareN * p.t.AlphaR / n.seconds
			by2[betaR] += o.e2 * shareN * p.t.BetaR * n.beyond / n.seconds
		}
		by2[gamma] += o.e2 * ((shareC*o.logCompute + shareN*n.log) - o.predicted) / p.t.Gamma
	}
	count := float64(len(p.observations))
	for i := range gradient {
		gradient[i] = by1[i]/(count*p.rmse1) + by2[i]/(count*p.rmse2)
	}
	gradient[gamma] += 2e-3 * (p.t.Gamma - 1)
	penalties := p.penalties()
	gradient[alphaN] -= 2 * penalties[0]
	gradient[betaN] += 2 * penalties[0]
	gradient[alphaR] -= 2 * penalties[1]
	gradient[betaR] += 2 * penalties[1]
	for i, is := range p.isFixed {
		if is {
			gradient[i] = 0
		}
	}
	return gradient
}
