// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goals

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/simulator"
)

func rowNames() []string { return []string{"blind", "progress", "history", "both"} }

// goalOf returns the goal of the mean relative to the recorded one of Pollux.
func goalOf(row, load string) float64 {
	return map[string]map[string]float64{
		"blind":    {"0.5": 1.00, "1.0": 0.96, "1.5": 0.91, "2.0": 0.88},
		"progress": {"0.5": 0.99, "1.0": 0.90, "1.5": 0.84, "2.0": 0.80},
		"history":  {"0.5": 0.93, "1.0": 0.90, "1.5": 0.86, "2.0": 0.85},
		"both":     {"0.5": 0.92, "1.0": 0.86, "1.5": 0.80, "2.0": 0.76},
	}[row][load]
}

const (
	goalTail     = 0.97
	goalRestarts = 4.5
	goalRound    = 5 * time.Millisecond
	goalWrong    = 1.03
	goalConstant = 0.02
	goalOverload = 1.2
	goalStarved  = 20
)

// baselines compares the simulator with what is recorded of the artifact's own.
func (b *bench) baselines() ([]Figure, error) {
	var figures []Figure
	for _, load := range b.loads {
		tiresias, err := b.run("tiresias", "", load)
		if err != nil {
			return nil, err
		}
		found := tiresias.Check(b.traces)
		figures = append(figures, Figure{
			Name: "Tiresias " + load + ": jobs exact to the second", Goal: strconv.Itoa(found.Compared),
			Measured: strconv.Itoa(found.Exact), Passed: found.Exact == found.Compared && found.Compared > 0,
		})
		optimus, err := b.run("optimus", "", load)
		if err != nil {
			return nil, err
		}
		figures = append(figures, within("Optimus "+load+": mean to its recorded one", 0.005, optimus.RatioToRecorded(b.traces, "optimus")))
		sia, err := b.run("sia", "", load)
		if err != nil {
			return nil, err
		}
		figures = append(figures, beside("Sia's objective, exact, "+load+": mean to Pollux", sia.RatioToRecorded(b.traces, "pollux")))
	}
	return figures, nil
}

// pollux compares the port of Pollux with its recorded results. Both are random.
func (b *bench) pollux() ([]Figure, error) {
	pollux, err := b.run("pollux", "", "1.0")
	if err != nil {
		return nil, err
	}
	return []Figure{within("port of Pollux 1.0: mean to its recorded one", 0.03, pollux.RatioToRecorded(b.traces, "pollux"))}, nil
}

// within returns a figure that must be near 1.
func within(name string, part, measured float64) Figure {
	return Figure{
		Name: name, Goal: fmt.Sprintf("1 +- %g", part), Measured: fmt.Sprintf("%.4f", measured), Passed: math.Abs(measured-1) <= part,
	}
}

// rows compares the mean of goodput with Pollux.
func (b *bench) rows() ([]Figure, error) {
	var figures []Figure
	for _, row := range rowNames() {
		for _, load := range b.loads {
			outcome, err := b.run("goodput", row, load)
			if err != nil {
				return nil, err
			}
			figures = append(figures, atMost(fmt.Sprintf("%s %s: mean to Pollux", row, load), goalOf(row, load), outcome.RatioToRecorded(b.traces, "pollux")))
		}
	}
	return figures, nil
}

// tails compares the pooled 99th percentile with that of Pollux.
func (b *bench) tails() ([]Figure, error) {
	var figures []Figure
	for _, row := range rowNames() {
		for _, load := range b.loads {
			outcome, err := b.run("goodput", row, load)
			if err != nil {
				return nil, err
			}
			name := fmt.Sprintf("%s %s: p99 to Pollux", row, load)
			part := float64(outcome.Summary.P99) / float64(simulator.Percentile(b.recorded("pollux", load), 99))
			if load == "0.5" {
				figures = append(figures, beside(name, part))
			} else {
				figures = append(figures, atMost(name, goalTail, part))
			}
		}
	}
	return figures, nil
}

// restarts returns the most restarts per job of all rows at each load.
func (b *bench) restarts() ([]Figure, error) {
	var figures []Figure
	for _, load := range b.loads {
		most := 0.0
		for _, row := range rowNames() {
			outcome, err := b.run("goodput", row, load)
			if err != nil {
				return nil, err
			}
			most = max(most, outcome.Summary.Restarts)
		}
		figures = append(figures, atMost(load+": restarts per job, the most of the rows", goalRestarts, most))
	}
	return figures, nil
}

// rounds returns how long the policy takes for a round.
func (b *bench) rounds() ([]Figure, error) {
	var figures []Figure
	for _, row := range rowNames() {
		outcome, err := b.run("goodput", row, "2.0")
		if err != nil {
			return nil, err
		}
		took := outcome.Summary.RoundP99
		figures = append(figures, Figure{
			Name: row + " 2.0: p99 of a round", Goal: "<= " + goalRound.String(), Measured: took.Round(10 * time.Microsecond).String(), Passed: took <= goalRound,
		})
	}
	return figures, nil
}

// wrongTotals compares jobs that report wrong totals, or stop before them, with the same jobs when
// they report no progress.
func (b *bench) wrongTotals() ([]Figure, error) {
	var figures []Figure
	for _, load := range b.loads {
		early, lying := experiment.Artifact(), experiment.Artifact()
		early.StopsEarly, lying.Lie = true, 3
		for _, variant := range []struct {
			name     string
			settings *experiment.Settings
		}{{"early stop", early}, {"totals wrong by 3", lying}} {
			for _, rows := range [][2]string{{"progress", "blind"}, {"both", "history"}} {
				wrong, err := b.runAs(variant.name, "goodput", rows[0], b.workloads[load], variant.settings)
				if err != nil {
					return nil, err
				}
				silent, err := b.runAs(variant.name, "goodput", rows[1], b.workloads[load], variant.settings)
				if err != nil {
					return nil, err
				}
				name := fmt.Sprintf("%s, %s %s: mean to %s", variant.name, rows[0], load, rows[1])
				figures = append(figures, atMost(name, goalWrong, wrong.RatioTo(silent)))
			}
		}
	}
	return figures, nil
}

// lostNodes loses 30 % of the nodes at any time. A run fails if a job is placed on lost or full nodes, or
// never ends.
func (b *bench) lostNodes() ([]Figure, error) {
	settings := experiment.Artifact()
	settings.Rules.Lose = 0.3
	var figures []Figure
	for _, load := range b.loads {
		outcome, err := b.runAs("30 % lost", "goodput", "blind", b.workloads[load], settings)
		name := "30 % of the nodes lost, blind " + load + ": jobs that end, never over capacity"
		if err != nil {
			figures = append(figures, Figure{Name: name, Goal: "all", Measured: err.Error()})
			continue
		}
		figures = append(figures, Figure{Name: name, Goal: "all", Measured: strconv.Itoa(outcome.Summary.Jobs), Passed: true})
	}
	return figures, nil
}
