// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// mix is a cluster of several types of devices.
type mix struct {
	// types is the file with the step times of applications by type; empty for one type.
	types string
	nodes string
}

func (m *mix) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&m.types, "types", "", "file with the step times of applications by the type of devices, for a cluster of several types")
	flags.StringVar(&m.nodes, "mix", "t4=6,rtx2080ti=6,a100=4", "with -types: the nodes of each type")
}

// apply sets the nodes of the cluster by the flags.
func (m *mix) apply(o *options) error {
	needsTypes := func(row simulator.Row) bool { return row.Types || row.Pins }
	if m.types == "" {
		if slices.ContainsFunc(o.rows, needsTypes) {
			return errors.New("-rows has a row of several types of devices: must not, without -types")
		}
		return nil
	}
	for _, policy := range o.policies {
		if policy.Baseline != nil {
			return fmt.Errorf("-types is %q: must be empty with -policy %s, which knows one type", m.types, policy.Name)
		}
	}
	if o.cluster.isOn || o.check || o.goals {
		return errors.New("-types is set: must be empty with -cluster, -check and -goals, which have one type")
	}
	var devices []string
	for _, part := range split(m.nodes) {
		name, text, _ := strings.Cut(part, "=")
		count, err := strconv.Atoi(text)
		if err != nil || count < 1 || len(devices)+count > 10000 {
			return fmt.Errorf("-mix is %q: must have a number of nodes from 1 to 10000 for each type, such as t4=6", m.nodes)
		}
		devices = append(devices, slices.Repeat([]string{name}, count)...)
	}
	o.settings.Rules.Nodes, o.settings.Rules.Devices = len(devices), devices
	return nil
}

// load reads the step times.
func (m *mix) load(traces *experiment.Traces, rules *simulator.Options) error {
	if m.types == "" {
		return nil
	}
	known, err := simulator.LoadDevices(m.types, traces.Applications())
	if err != nil {
		return fmt.Errorf("-types is %q: %w", m.types, err)
	}
	for _, device := range rules.Devices {
		if !slices.Contains(known, device) {
			return fmt.Errorf("-mix is %q: there is no type %q: must be of %s", m.nodes, device, strings.Join(known, ", "))
		}
	}
	return nil
}
