// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAPolicyThatKnowsRacksIsBetterThanOneThatDoesNot(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"goodput", "fit"} {
		means := map[string]float64{}
		for _, hidden := range []string{"-hide-racks=false", "-hide-racks"} {
			table, err := runSim(t, "-policy", policy, "-rows", "blind", "-loads", "2.0", "-gpus", "2", "-rack", "4", "-crossing", "10", hidden)
			expect.NoError(t, err)
			means[hidden], err = strconv.ParseFloat(meanOf(table), 64)
			expect.NoError(t, err)
		}
		if !(means["-hide-racks=false"] < 0.9*means["-hide-racks"]) {
			t.Errorf("%s: means are %v, want less by 10 %% of the one that knows racks", policy, means)
		}
	}
}

func TestOneRackIsNone(t *testing.T) {
	t.Parallel()
	without, err := runSim(t, "-policy", "goodput", "-rows", "blind", "-workloads", "1")
	expect.NoError(t, err)
	with, err := runSim(t, "-policy", "goodput", "-rows", "blind", "-workloads", "1", "-rack", "16", "-crossing", "10")
	expect.NoError(t, err)
	expect.Equal(t, "mean", meanOf(without), meanOf(with))
}

func TestRacksMustBePartsOfTheCluster(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"-rack is 0: must be a number of nodes with -crossing and -hide-racks": {"-crossing", "3"},
		"-rack is 17: must be from 0 to 16, the nodes of the cluster":          {"-rack", "17", "-crossing", "3"},
		"-rack is -1: must be from 0 to 16, the nodes of the cluster":          {"-rack", "-1", "-crossing", "3"},
		"-crossing is 0: must be from 1 to 100":                                {"-rack", "4"},
		"-rack is set: must be 0 with -cluster and -goals":                     {"-rack", "4", "-crossing", "3", "-goals"},
		"-check compares with results by the rules of the artifact":            {"-rack", "4", "-crossing", "3", "-check"},
	} {
		if _, err := runSim(t, append(args, "-policy", "goodput")...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error is %v, want %s", args, err, want)
		}
	}
}
