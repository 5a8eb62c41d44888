// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxMeasured bounds the measured configurations: reports count the newest 64.
	maxMeasured = 64
	// memory is the number of rounds after which a measurement is mostly forgotten.
	memory = 10
)

// profile is what a training knows of its speed and of the noise of its gradients, in the schema of
// docs/profilings.md. It is saved with the checkpoint, because each report replaces the one before.
type profile struct {
	// Steps are the measured steps, the newest last.
	Steps []measured `json:"steps,omitempty"`
	// Gradient is the noise at the batch of a round.
	Gradient noise `json:"gradient"`
	Rounds   int   `json:"rounds"`
}

// measured is the mean step of a configuration. A step is a round, whose batch is all its units.
type measured struct {
	Nodes    int     `json:"nodes"`
	Replicas int     `json:"replicas"`
	Samples  int     `json:"samples"`
	Seconds  float64 `json:"seconds"`
	rounds   int
}

type noise struct {
	Sqr float64 `json:"sqr"`
	Var float64 `json:"var"`
}

// batch bounds the batch of a round.
type batch struct {
	Initial        int  `json:"initial"`
	NoAccumulation bool `json:"no_accumulation"`
}

// record adds a round that took some time with some collectors. The profile keeps moving means.
func (p *profile) record(nodes, collectors int, took time.Duration) {
	if collectors < 1 || took <= 0 {
		return
	}
	m := measured{Nodes: min(max(nodes, 1), collectors), Replicas: collectors, Samples: (collectUnits + collectors - 1) / collectors}
	at := slices.IndexFunc(p.Steps, func(s measured) bool { return s.Nodes == m.Nodes && s.Replicas == m.Replicas })
	if at >= 0 {
		m = p.Steps[at]
		p.Steps = slices.Delete(p.Steps, at, at+1)
	}
	m.rounds = min(m.rounds+1, memory)
	m.Seconds += (took.Seconds() - m.Seconds) / float64(m.rounds)
	p.Steps = append(p.Steps, m)
	p.Steps = p.Steps[max(len(p.Steps)-maxMeasured, 0):]
}

// observe adds the gradients of a round's units: their mean is the gradient of the round, and their
// variance is that of one unit.
func (p *profile) observe(all []unit, returns [][]int) {
	gradients := make([]weights, len(all))
	var mean weights
	for i, u := range all {
		gradients[i] = weights{}.plus(float64(returns[i][0]-returns[i][1]), change(u.random()))
		mean = mean.plus(1/float64(len(all)), gradients[i])
	}
	squares := 0.0
	for _, g := range gradients {
		squares += g.plus(-1, mean).norm()
	}
	now := noise{Var: squares / float64(len(all)-1) / float64(len(all))}
	now.Sqr = max(mean.norm()-now.Var, 0)
	p.Rounds++
	part := 1 / float64(min(p.Rounds, memory))
	p.Gradient.Sqr += part * (now.Sqr - p.Gradient.Sqr)
	p.Gradient.Var += part * (now.Var - p.Gradient.Var)
}

// report returns the profilings of a job, with fields of its own beside those of the schema.
func (p *profile) report(at progress) map[string]any {
	body := map[string]any{
		"version": 1, "batch": batch{Initial: collectUnits, NoAccumulation: true},
		"progress": map[string]any{"done": at.Round, "unit": "round"},
		"round":    at.Round, "env_steps": at.Steps, "return": at.Return, "reward": at.Eval, "target": at.Target, "collectors": at.Collectors,
	}
	if len(p.Steps) > 0 {
		body["steps"] = p.Steps
	}
	if p.Rounds > 0 {
		body["gradient"] = p.Gradient
	}
	return body
}

// norm returns the squared norm.
func (w weights) norm() float64 {
	sum := 0.0
	for _, value := range w {
		sum += value * value
	}
	return sum
}

// nodesIn counts the nodes of workers. Workers whose node is not known count as one node.
func nodesIn(nodes []string) int {
	slices.Sort(nodes)
	return cmp.Or(len(slices.Compact(nodes)), 1)
}
