// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings

import (
	"fmt"
	"unicode/utf8"
)

// The bounds of a report. Sums and products of values within them are finite.
const (
	// maxBytes bounds the size of a report: di-server stores at most 1 MiB.
	maxBytes = 1 << 20
	// maxReplicas bounds replicas and nodes.
	maxReplicas = 100_000
	// maxAccumulation bounds the passes of a step.
	maxAccumulation = 100_000
	// maxBatch bounds batches, in samples.
	maxBatch = 1 << 40
	// minSeconds and maxSeconds bound the duration of a pass. A fit searches in this range.
	minSeconds, maxSeconds = 1e-7, 1e5
	// maxRate bounds rates per second.
	maxRate = 1e12
	// maxNumber bounds gradients and progress.
	maxNumber = 1e30
	// maxUnit bounds the characters of a unit.
	maxUnit = 64
	// maxDevice bounds the characters of the type of devices, a value of a label.
	maxDevice = 63
)

func (r *Report) check() error {
	if err := checkInteger("profilings.version", r.Version, 0, Version); err != nil {
		return err
	}
	for i := range r.Steps {
		if err := r.Steps[i].check(fmt.Sprintf("profilings.steps[%d]", i)); err != nil {
			return err
		}
	}
	for i := range r.Throughput {
		if err := r.Throughput[i].check(fmt.Sprintf("profilings.throughput[%d]", i)); err != nil {
			return err
		}
		if (r.Throughput[i].Batch > 0) != (r.Throughput[0].Batch > 0) {
			return fmt.Errorf("profilings.throughput[%d].batch is %d and profilings.throughput[0].batch is %d: all rates must have a batch, or none",
				i, r.Throughput[i].Batch, r.Throughput[0].Batch)
		}
	}
	return first(
		func() error { return r.Batch.check("profilings.batch") },
		func() error { return r.Gradient.check("profilings.gradient") },
		func() error { return r.Progress.check("profilings.progress") },
		r.adaptDL.check,
	)
}

func (b *Batch) check(field string) error {
	if b == nil {
		return nil
	}
	return first(
		func() error { return checkInteger(field+".initial", b.Initial, 1, maxBatch) },
		func() error { return checkOptional(field+".max", b.Max, b.Initial, maxBatch) },
		func() error {
			return checkOptional(field+".min_per_replica", b.MinPerReplica, 1, max(b.Max, b.Initial))
		},
		func() error {
			return checkOptional(field+".max_per_replica", b.MaxPerReplica, max(b.MinPerReplica, 1), maxBatch)
		},
	)
}

func (s *Step) check(field string) error {
	return first(
		func() error { return checkPlace(field, s.Nodes, s.Replicas) },
		func() error { return checkInteger(field+".samples", s.Samples, 1, maxBatch) },
		func() error { return checkNumber(field+".seconds", s.Seconds, minSeconds, maxSeconds) },
		func() error {
			if s.ComputeSeconds == 0 {
				return nil
			}
			return checkNumber(field+".compute_seconds", s.ComputeSeconds, minSeconds, s.Seconds)
		},
		func() error {
			if length := utf8.RuneCountInString(s.Device); length > maxDevice {
				return fmt.Errorf("%s.device has %d characters: must have at most %d", field, length, maxDevice)
			}
			return nil
		},
	)
}

func (r *Rate) check(field string) error {
	return first(
		func() error { return checkPlace(field, r.Nodes, r.Replicas) },
		func() error { return checkOptional(field+".batch", r.Batch, 1, maxBatch) },
		func() error { return checkInteger(field+".accumulation", r.Accumulation, 0, maxAccumulation) },
		func() error {
			return checkNumber(field+".per_second", r.PerSecond, float64(r.Replicas)/maxSeconds, maxRate)
		},
		func() error {
			if r.Batch == 0 {
				return nil
			}
			// The rate and the batch of a pass are plausible together.
			pass := float64(r.Batch) / float64(r.Accumulation+1)
			return checkNumber(field+".per_second", r.PerSecond, pass/maxSeconds, pass/minSeconds)
		},
	)
}

func (g *Gradient) check(field string) error {
	if g == nil {
		return nil
	}
	return first(
		func() error { return checkNumber(field+".sqr", g.Sqr, 0, maxNumber) },
		func() error { return checkNumber(field+".var", g.Var, 0, maxNumber) },
	)
}

func (p *Progress) check(field string) error {
	if p == nil {
		return nil
	}
	if length := utf8.RuneCountInString(p.Unit); length > maxUnit {
		return fmt.Errorf("%s.unit has %d characters: must have at most %d", field, length, maxUnit)
	}
	return first(
		func() error { return checkNumber(field+".done", p.Done, 0, maxNumber) },
		func() error { return checkNumber(field+".total", p.Total, 0, maxNumber) },
	)
}

func checkPlace(field string, nodes, replicas int) error {
	return first(
		func() error { return checkInteger(field+".replicas", replicas, 1, maxReplicas) },
		func() error { return checkInteger(field+".nodes", nodes, 1, replicas) },
	)
}

// checkOptional checks a number that is 0 if it is not given.
func checkOptional(field string, value, least, most int) error {
	if value == 0 {
		return nil
	}
	return checkInteger(field, value, least, most)
}

func checkInteger(field string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("%s is %d: must be from %d to %d", field, value, least, most)
	}
	return nil
}

func checkNumber(field string, value, least, most float64) error {
	if value >= least && value <= most {
		return nil
	}
	return fmt.Errorf("%s is %g: must be from %g to %g", field, value, least, most)
}

// first returns the error of the first check that fails. Later checks may rely on earlier ones.
func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
