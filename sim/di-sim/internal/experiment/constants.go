// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"time"

	"opendilab.org/di-orchestrator/allocation/goodput"
)

// Constant is a constant of the policy goodput.
type Constant struct {
	Name string
	// Row is the row whose results depend on it most.
	Row string
	// Scale multiplies it.
	Scale func(settings *goodput.Settings, factor float64)
}

// Constants returns the constants that the policy's results could depend on.
func Constants() []Constant {
	duration := func(name, row string, field func(*goodput.Settings) *time.Duration) Constant {
		return Constant{Name: name, Row: row, Scale: func(settings *goodput.Settings, factor float64) {
			value := field(settings)
			*value = time.Duration(float64(*value) * factor)
		}}
	}
	number := func(name string, field func(*goodput.Settings) *float64) Constant {
		return Constant{Name: name, Row: "blind", Scale: func(settings *goodput.Settings, factor float64) { *field(settings) *= factor }}
	}
	return []Constant{
		duration("Drain", "blind", func(s *goodput.Settings) *time.Duration { return &s.Drain }),
		duration("DrainReported", "progress", func(s *goodput.Settings) *time.Duration { return &s.DrainReported }),
		duration("DrainGuessed", "history", func(s *goodput.Settings) *time.Duration { return &s.DrainGuessed }),
		duration("Large", "blind", func(s *goodput.Settings) *time.Duration { return &s.Large }),
		number("Share", func(s *goodput.Settings) *float64 { return &s.Share }),
		duration("Settled", "blind", func(s *goodput.Settings) *time.Duration { return &s.Settled }),
		duration("Horizon", "blind", func(s *goodput.Settings) *time.Duration { return &s.Horizon }),
		number("Fairness", func(s *goodput.Settings) *float64 { return &s.Fairness }),
		duration("StarveAfter", "blind", func(s *goodput.Settings) *time.Duration { return &s.StarveAfter }),
		number("StarveShare", func(s *goodput.Settings) *float64 { return &s.StarveShare }),
	}
}
