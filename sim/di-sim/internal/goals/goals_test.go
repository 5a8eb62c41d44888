// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goals

import (
	"io"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// invented returns a bench on the first invented workload of the load 2.0.
func invented(t *testing.T) *bench {
	t.Helper()
	traces, err := experiment.Open("../../../simulator/testdata/traces")
	expect.NoError(t, err)
	workloads, err := traces.Workloads("2.0", 1)
	expect.NoError(t, err)
	return &bench{
		traces: traces, progress: io.Discard, loads: []string{"2.0"},
		workloads: map[string][]experiment.Workload{"2.0": workloads}, outcomes: map[string]*experiment.Outcome{},
	}
}

func TestEveryPartMeasuresItsFigures(t *testing.T) {
	t.Parallel()
	b := invented(t)
	for want, part := range map[string]func() ([]Figure, error){
		"Tiresias 2.0: jobs exact to the second | 60 | 60":             b.baselines,
		"both 2.0: mean to Pollux | <= 0.76 |":                         b.rows,
		"blind 2.0: p99 to Pollux | <= 0.97 |":                         b.tails,
		"2.0: restarts per job, the most of the rows | <= 4.50 |":      b.restarts,
		"history 2.0: p99 of a round | <= 5ms |":                       b.rounds,
		"totals wrong by 3, both 2.0: mean to history | <= 1.03 |":     b.wrongTotals,
		"jobs that end, never over capacity | all | 60":                b.lostNodes,
		"overload, blind: p99 to Sia's objective | <= 1.20 |":          b.overload,
		"Horizon halved, doubled: change of the mean, blind | < 2 % |": b.constants,
	} {
		figures, err := part()
		expect.NoError(t, err)
		var lines []string
		for _, figure := range figures {
			lines = append(lines, strings.Join([]string{figure.Name, figure.Goal, figure.Measured}, " | "))
		}
		if all := strings.Join(lines, "\n"); !strings.Contains(all, want) {
			t.Errorf("no figure is %q:\n%s", want, all)
		}
	}
}

func TestTheTableSaysWhichGoalsAreMissed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	missed, err := Print(&out, []Figure{atMost("mean", 0.9, 0.95), atMost("p99", 0.97, 0.9), beside("Sia", 1.2), within("port", 0.03, 1.031)})
	if err != nil || missed != 2 {
		t.Fatalf("%d are missed, error %v:\n%s", missed, err, out.String())
	}
	var words []string
	for line := range strings.Lines(out.String()) {
		words = append(words, strings.Join(strings.Fields(line), " "))
	}
	want := "figure goal measured|mean <= 0.90 0.950 missed|p99 <= 0.97 0.900 passed|Sia - 1.200|port 1 +- 0.03 1.0310 missed"
	if got := strings.Join(words, "|"); got != want {
		t.Errorf("the table is %s, want %s", got, want)
	}
}
