// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/sim/simulator"
	"opendilab.org/di-orchestrator/sim/simulator/baselines"
)

// Policy is a policy that can be simulated. One of the constructors is set.
type Policy struct {
	Name string
	// Allocation makes a policy of package allocation, which the operator can run.
	Allocation func(*Settings) allocation.Policy
	// IsReporting is whether the policy reads reports, so that it has rows.
	IsReporting bool
	// Baseline makes a policy of the simulator alone.
	Baseline func(seed uint64) simulator.Policy
}

// Policies returns the policies by name, in the order of tables.
func Policies() []Policy {
	return []Policy{
		{Name: "goodput", IsReporting: true, Allocation: func(s *Settings) allocation.Policy { return goodput.New(s.Goodput) }},
		{Name: "fit", Allocation: func(*Settings) allocation.Policy { return fit.Fit{} }},
		{Name: "tiresias", Baseline: func(uint64) simulator.Policy { return baselines.NewTiresias() }},
		{Name: "optimus", Baseline: func(uint64) simulator.Policy { return baselines.Optimus{} }},
		{Name: "pollux", Baseline: func(seed uint64) simulator.Policy { return baselines.NewPollux(seed) }},
		{Name: "sia", Baseline: func(uint64) simulator.Policy { return baselines.Sia{} }},
	}
}

// FindPolicy returns the policy of a name.
func FindPolicy(name string) (Policy, error) {
	var names []string
	for _, policy := range Policies() {
		if policy.Name == name {
			return policy, nil
		}
		names = append(names, policy.Name)
	}
	return Policy{}, fmt.Errorf("there is no policy %q: must be one of %s", name, strings.Join(names, ", "))
}

// FindRow returns the row of a name.
func FindRow(name string) (simulator.Row, error) {
	var names []string
	for _, row := range slices.Concat(simulator.Rows(), simulator.MixedRows()) {
		if row.Name == name {
			return row, nil
		}
		names = append(names, row.Name)
	}
	return simulator.Row{}, fmt.Errorf("there is no row %q: must be one of %s", name, strings.Join(names, ", "))
}
