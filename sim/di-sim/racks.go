// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"

	"opendilab.org/di-orchestrator/sim/simulator"
)

// addRacks adds the flags of a cluster of several racks.
func addRacks(flags *flag.FlagSet, racks *simulator.Racks) {
	flags.IntVar(&racks.Rack, "rack", 0, "nodes of a rack; 0 if all are in one")
	flags.Float64Var(&racks.Slowdown, "crossing", 0, "with -rack: how many times as long a job synchronizes across racks")
	flags.BoolVar(&racks.Hidden, "hide-racks", false, "with -rack: no policy knows the racks")
}

// checkRacks checks these flags.
func (o *options) checkRacks() error {
	racks := &o.settings.Rules.Racks
	switch {
	case racks.Rack == 0 && (racks.Slowdown != 0 || racks.Hidden):
		return errors.New("-rack is 0: must be a number of nodes with -crossing and -hide-racks")
	case racks.Rack == 0:
		return nil
	case racks.Rack < 0 || racks.Rack > o.settings.Rules.Nodes:
		return fmt.Errorf("-rack is %d: must be from 0 to %d, the nodes of the cluster", racks.Rack, o.settings.Rules.Nodes)
	case !(racks.Slowdown >= 1 && racks.Slowdown <= 100):
		return fmt.Errorf("-crossing is %g: must be from 1 to 100", racks.Slowdown)
	case o.cluster.isOn || o.goals:
		return errors.New("-rack is set: must be 0 with -cluster and -goals, which have one rack")
	}
	return nil
}
