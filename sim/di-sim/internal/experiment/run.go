// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"math"
	"time"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// Settings change the rules of the artifact. Artifact has those of its recorded results.
type Settings struct {
	Rules simulator.Options
	// Seed is that of all that is random.
	Seed uint64
	// StopsEarly is whether jobs stop at a random part of their epochs.
	StopsEarly bool
	// Lie is by which factor declared totals are wrong; 1 for none.
	Lie float64
	// Tenants share the cluster: the jobs of a workload are of them in turn. Without any, all jobs compete alike.
	Tenants []shares.Tenant
	// Goodput are the constants of the policy goodput.
	Goodput goodput.Settings
	// Clock measures the rounds of the policies.
	Clock func() time.Time
}

// Artifact returns the settings of the recorded results.
func Artifact() *Settings {
	return &Settings{Rules: simulator.Artifact(), Seed: 1, Lie: 1, Goodput: goodput.DefaultSettings(), Clock: processorTime}
}

// Outcome is the results of a policy on the workloads of a load.
type Outcome struct {
	Policy string `json:"policy"`
	// Row is what jobs report; empty for a policy that reads no reports.
	Row       string              `json:"row,omitempty"`
	Load      string              `json:"load"`
	Summary   simulator.Summary   `json:"summary"`
	Workloads []string            `json:"workloads"`
	Results   []*simulator.Result `json:"results"`
	// Cluster is what the operator took beyond; nil for a simulation.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Cluster is what a run in the operator measures in real time.
type Cluster struct {
	// Factor is how many simulated seconds passed in a real one.
	Factor float64 `json:"factor"`
	// Took is the time of all runs, and Slow the part of it while simulated time was as slow as real time.
	Took time.Duration `json:"took"`
	Slow time.Duration `json:"slow"`
	// CarriedP50 and CarriedP99 are the times from a decision until all replicas run.
	CarriedP50 time.Duration `json:"carriedP50"`
	CarriedP99 time.Duration `json:"carriedP99"`
}

// Run simulates a policy on workloads of one load. The row is ignored for a policy without rows.
func Run(policy *Policy, row simulator.Row, workloads []Workload, settings *Settings) (*Outcome, error) {
	outcome := &Outcome{Policy: policy.Name, Load: workloads[0].Load}
	if policy.IsReporting {
		outcome.Row = row.Name
	}
	for i := range workloads {
		result, err := simulator.Run(settings.Jobs(&workloads[i]), policy.make(row, settings), settings.rules(), settings.Clock)
		if err != nil {
			return nil, fmt.Errorf("policy %s, load %s, %s: %w", policy.Name, workloads[i].Load, workloads[i].Name, err)
		}
		outcome.Workloads, outcome.Results = append(outcome.Workloads, workloads[i].Name), append(outcome.Results, result)
	}
	outcome.Summary = simulator.Summarize(outcome.Results...)
	return outcome, nil
}

func (p *Policy) make(row simulator.Row, settings *Settings) simulator.Policy {
	if p.Baseline != nil {
		return p.Baseline(settings.Seed)
	}
	if !p.IsReporting {
		row = simulator.Row{Fixed: true}
	}
	if !row.Types {
		blind := *settings
		blind.Goodput.DeviceKey = ""
		settings = &blind
	}
	made := simulator.NewAllocator(p.Allocation(settings), row, settings.Rules.Restart)
	made.ShareAmong(settings.Tenants)
	return made
}

func (s *Settings) rules() simulator.Options {
	rules := s.Rules
	rules.Seed = s.Seed
	return rules
}

// Jobs returns the jobs of a workload as the settings change them.
func (s *Settings) Jobs(workload *Workload) []simulator.Submission {
	jobs := workload.Jobs
	if s.StopsEarly {
		jobs = simulator.StopEarly(jobs, s.Seed)
	}
	if s.Lie != 1 {
		jobs = simulator.Misdeclare(jobs, s.Lie, s.Seed)
	}
	if len(s.Tenants) > 0 {
		jobs = simulator.Assign(jobs, s.Tenants)
	}
	return jobs
}

// Ratio returns the mean over the workloads of the policy's mean over a reference's mean; NaN where
// the reference lacks a workload.
func (o *Outcome) Ratio(reference func(workload string) (mean float64, known bool)) float64 {
	sum := 0.0
	for i, name := range o.Workloads {
		mean, known := reference(name)
		if !known {
			return math.NaN()
		}
		sum += simulator.Summarize(o.Results[i]).Mean / mean
	}
	return sum / float64(len(o.Workloads))
}

// RatioToRecorded returns the ratio to a policy's recorded results; NaN where there are none.
func (o *Outcome) RatioToRecorded(traces *Traces, policy string) float64 {
	return o.Ratio(func(workload string) (float64, bool) {
		recorded := traces.Recorded(policy, &Workload{Load: o.Load, Name: workload})
		sum := 0.0
		for _, seconds := range recorded {
			sum += float64(seconds)
		}
		return sum / float64(len(recorded)), len(recorded) > 0
	})
}

// RatioTo returns the ratio to the outcome of another policy on the same workloads.
func (o *Outcome) RatioTo(other *Outcome) float64 {
	return o.Ratio(func(workload string) (float64, bool) {
		for i, name := range other.Workloads {
			if name == workload {
				return simulator.Summarize(other.Results[i]).Mean, true
			}
		}
		return 0, false
	})
}
