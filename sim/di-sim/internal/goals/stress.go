// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goals

import (
	"fmt"
	"math"
	"slices"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// Workloads of the artifact last 8 hours. The overload has all of load 2.0 at twice the rate.
const (
	period = 8 * 3600
	rate   = 2
)

// overload compares goodput with Sia's objective while far more jobs arrive than the cluster serves.
func (b *bench) overload() ([]Figure, error) {
	var parts [][]simulator.Submission
	for _, workload := range b.workloads["2.0"] {
		parts = append(parts, workload.Jobs)
	}
	workloads := []experiment.Workload{{Load: "overload", Name: "overload", Jobs: simulator.Join(parts, period, rate)}}
	sia, err := b.runAs("overload", "sia", "", workloads, experiment.Artifact())
	if err != nil {
		return nil, err
	}
	alone, err := b.alone()
	if err != nil {
		return nil, err
	}
	var figures []Figure
	for _, row := range rowNames() {
		outcome, err := b.runAs("overload", "goodput", row, workloads, experiment.Artifact())
		if err != nil {
			return nil, err
		}
		longest := 0.0
		for i := range outcome.Results[0].Jobs {
			job := &outcome.Results[0].Jobs[i]
			longest = max(longest, float64(job.Starved)/float64(alone[job.Application]))
		}
		figures = append(figures,
			beside("overload, "+row+": jobs in the cluster on average", outcome.Summary.Mean*float64(outcome.Summary.Jobs)/outcome.Summary.Makespan),
			beside("overload, "+row+": mean to Sia's objective", outcome.RatioTo(sia)),
			atMost("overload, "+row+": p99 to Sia's objective", goalOverload, float64(outcome.Summary.P99)/float64(sia.Summary.P99)),
			atMost("overload, "+row+": longest wait while others have more than their least, to own time alone", goalStarved, longest),
		)
	}
	return figures, nil
}

// alone returns the completion time of a job of each application that has the cluster for itself.
func (b *bench) alone() (map[string]int, error) {
	seconds := map[string]int{}
	for name, application := range b.traces.Applications() {
		job := simulator.Submission{Name: name, Application: application, Replicas: 1, Batch: application.Bounds.Initial}
		workloads := []experiment.Workload{{Load: name, Name: "alone", Jobs: []simulator.Submission{job}}}
		outcome, err := b.runAs("alone", "goodput", "blind", workloads, experiment.Artifact())
		if err != nil {
			return nil, err
		}
		seconds[name] = outcome.Results[0].Jobs[0].JCT()
	}
	return seconds, nil
}

// constants changes each constant of goodput by a factor of two, at the loads 1.0 and 2.0.
func (b *bench) constants() ([]Figure, error) {
	var figures []Figure
	loads := slices.DeleteFunc(slices.Clone(b.loads), func(load string) bool { return load != "1.0" && load != "2.0" })
	for _, constant := range experiment.Constants() {
		sums := map[float64]float64{}
		for _, load := range loads {
			usual, err := b.run("goodput", constant.Row, load)
			if err != nil {
				return nil, err
			}
			for _, factor := range []float64{0.5, 2} {
				settings := experiment.Artifact()
				constant.Scale(&settings.Goodput, factor)
				name := fmt.Sprintf("%s x %g", constant.Name, factor)
				changed, err := b.runAs(name, "goodput", constant.Row, b.workloads[load], settings)
				if err != nil {
					return nil, err
				}
				sums[factor] += changed.RatioTo(usual) / float64(len(loads))
			}
		}
		// A constant that is better elsewhere is worth knowing, but the mean must not depend on it.
		halved, doubled := sums[0.5]-1, sums[2]-1
		figures = append(figures, Figure{
			Name: fmt.Sprintf("%s halved, doubled: change of the mean, %s", constant.Name, constant.Row), Goal: fmt.Sprintf("< %g %%", goalConstant*100),
			Measured: fmt.Sprintf("%+.1f %%, %+.1f %%", halved*100, doubled*100), Passed: math.Max(math.Abs(halved), math.Abs(doubled)) < goalConstant,
		})
	}
	return figures, nil
}
