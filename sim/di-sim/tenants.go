// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
)

// The maxima of tenants, and of a weight, are those of the operator's configuration.
const maxTenants, maxWeight = 64, 1000

// readTenants reads the tenants of the flag.
func (o *options) readTenants() error {
	names := map[string]bool{}
	for _, part := range split(o.tenants) {
		name, text, _ := strings.Cut(part, "=")
		weight, err := strconv.Atoi(text)
		if err != nil || name == "" || names[name] || weight < 1 || weight > maxWeight || len(names) == maxTenants {
			return fmt.Errorf("-tenants is %q: must have at most %d names, each once, with a weight from 1 to %d, such as a=3,b=1", o.tenants, maxTenants, maxWeight)
		}
		names[name] = true
		o.settings.Tenants = append(o.settings.Tenants, shares.Tenant{Name: name, Weight: int32(weight)})
	}
	if len(names) == 0 {
		return nil
	}
	for _, policy := range o.policies {
		if policy.Baseline != nil {
			return fmt.Errorf("-tenants is %q: must be empty with -policy %s, which knows no tenants", o.tenants, policy.Name)
		}
	}
	if o.cluster.isOn || o.check || o.goals {
		return fmt.Errorf("-tenants is %q: must be empty with -cluster, -check and -goals, which have no tenants", o.tenants)
	}
	return nil
}

// printShares prints what each tenant had in the first hour in which all wanted their whole share, by workload. Without tenants
// it prints nothing.
func printShares(to io.Writer, outcomes []*experiment.Outcome, settings *experiment.Settings) error {
	if len(settings.Tenants) == 0 {
		return nil
	}
	weights, entitled := 0, map[string]int{}
	for _, tenant := range settings.Tenants {
		weights += int(tenant.Weight)
	}
	for _, tenant := range settings.Tenants {
		entitled[tenant.Name] = settings.Rules.Nodes * settings.Rules.GPUs * int(tenant.Weight) / weights
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "load\tworkload\tpolicy\trow\tminutes\ttenant\tGPU h\tshare\tof its entitlement\t")
	for _, outcome := range outcomes {
		for i, result := range outcome.Results {
			hour := result.FirstHour(entitled, settings.Rules.Interval)
			sum := 0.0
			for _, had := range hour.GPUSeconds {
				sum += had
			}
			for _, tenant := range settings.Tenants {
				share := hour.GPUSeconds[tenant.Name] / max(sum, 1)
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%.2f\t%.3f\t%.3f\t\n", outcome.Load, outcome.Workloads[i], outcome.Policy, dash(outcome.Row), hour.Seconds/60,
					tenant.Name, hour.GPUSeconds[tenant.Name]/3600, share, share*float64(weights)/float64(tenant.Weight))
			}
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the shares: %w", err)
	}
	return nil
}
