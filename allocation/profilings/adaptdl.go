// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings

import (
	"fmt"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/allocation/model"
)

// adaptDL are the hints that trainers of AdaptDL post (adaptdl/sched_hints.py). AdaptDL posts null
// or 0 for a hint that it does not have.
type adaptDL struct {
	InitBatchSize int `json:"initBatchSize,omitempty"`
	// LocalBszBounds are the least and the largest batch of one replica and pass, or nothing.
	LocalBszBounds      []int       `json:"localBszBounds,omitempty"`
	GlobalBatchSize     int         `json:"globalBatchSize,omitempty"`
	MaxBatchSize        int         `json:"maxBatchSize,omitempty"`
	MaxProfiledReplicas int         `json:"maxProfiledReplicas,omitempty"`
	Accumulates         bool        `json:"gradientAccumulation,omitempty"`
	GradParams          *gradParams `json:"gradParams,omitempty"`
	PerfParams          *perfParams `json:"perfParams,omitempty"`
}

// gradParams is the noise of gradients. Norm is the squared norm, despite its name.
type gradParams struct {
	Norm float64 `json:"norm"`
	Var  float64 `json:"var"`
}

// perfParams are the parameters that AdaptDL fits to its own measurements.
type perfParams struct {
	AlphaC float64 `json:"alpha_c"`
	BetaC  float64 `json:"beta_c"`
	AlphaN float64 `json:"alpha_n"`
	BetaN  float64 `json:"beta_n"`
	AlphaR float64 `json:"alpha_r"`
	BetaR  float64 `json:"beta_r"`
	Gamma  float64 `json:"gamma"`
}

func (a *adaptDL) check() error {
	return first(
		func() error { return checkOptional("profilings.initBatchSize", a.InitBatchSize, 1, maxBatch) },
		func() error { return checkOptional("profilings.globalBatchSize", a.GlobalBatchSize, 1, maxBatch) },
		func() error {
			return checkOptional("profilings.maxBatchSize", a.MaxBatchSize, max(a.InitBatchSize, 1), maxBatch)
		},
		a.checkLocal,
		func() error {
			return checkOptional("profilings.maxProfiledReplicas", a.MaxProfiledReplicas, 1, maxReplicas)
		},
		a.GradParams.check,
		a.PerfParams.check,
	)
}

func (a *adaptDL) checkLocal() error {
	switch bounds := a.LocalBszBounds; len(bounds) {
	case 0:
		return nil
	case 2:
		const field = "profilings.localBszBounds"
		return first(
			func() error {
				return checkOptional(field+"[0]", bounds[0], 1, max(a.MaxBatchSize, a.InitBatchSize, a.GlobalBatchSize, 1))
			},
			func() error { return checkOptional(field+"[1]", bounds[1], max(bounds[0], 1), maxBatch) },
		)
	default:
		return fmt.Errorf("profilings.localBszBounds has %s: must be [least, largest]", english.Plural(len(bounds), "number", ""))
	}
}

func (g *gradParams) check() error {
	if g == nil {
		return nil
	}
	return first(
		func() error { return checkNumber("profilings.gradParams.norm", g.Norm, 0, maxNumber) },
		func() error { return checkNumber("profilings.gradParams.var", g.Var, 0, maxNumber) },
	)
}

func (p *perfParams) check() error {
	if p == nil {
		return nil
	}
	for _, parameter := range []struct {
		name  string
		value float64
	}{
		{"alpha_c", p.AlphaC}, {"beta_c", p.BetaC}, {"alpha_n", p.AlphaN},
		{"beta_n", p.BetaN}, {"alpha_r", p.AlphaR}, {"beta_r", p.BetaR},
	} {
		if err := checkNumber("profilings.perfParams."+parameter.name, parameter.value, 0, maxSeconds); err != nil {
			return err
		}
	}
	return first(
		func() error { return checkNumber("profilings.perfParams.gamma", p.Gamma, 1, 10) },
		func() error {
			return checkNumber("profilings.perfParams.alpha_c + beta_c", p.AlphaC+p.BetaC, minSeconds, 2*maxSeconds)
		},
	)
}

// batch returns the hints as a batch of the schema; nil if they have none.
func (a *adaptDL) batch() *Batch {
	batch := &Batch{Initial: a.InitBatchSize, Max: a.MaxBatchSize, NoAccumulation: !a.Accumulates}
	if batch.Initial == 0 {
		batch.Initial, batch.Max = a.GlobalBatchSize, a.GlobalBatchSize
	}
	if batch.Initial == 0 {
		return nil
	}
	if len(a.LocalBszBounds) == 2 {
		batch.MinPerReplica, batch.MaxPerReplica = a.LocalBszBounds[0], a.LocalBszBounds[1]
	}
	return batch
}

func (p *perfParams) throughput() model.Throughput {
	return model.Throughput{
		AlphaC: p.AlphaC, BetaC: p.BetaC, AlphaN: p.AlphaN, BetaN: p.BetaN, AlphaR: p.AlphaR, BetaR: p.BetaR, Gamma: p.Gamma,
	}
}
