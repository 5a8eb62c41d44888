// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestThePageOfBenchmarksIsThatOfTheRawResults(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "..", "..", "docs")
	files, err := Files(docs)
	expect.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what the results give (%v): run make bench-docs", name, err)
		}
	}
}

func rungs() []*results.Rung {
	const mebi = 1 << 20
	return []*results.Rung{
		{Operator: results.Need{Resident: 50 * mebi}},
		{Pods: 1024, PodRequests: 3, Operator: results.Need{PodMillis: 2, Resident: 60 * mebi}, Stored: 8 * mebi},
		{Pods: 3072, PodRequests: 6, Operator: results.Need{PodMillis: 2.2, Resident: 80 * mebi}, Stored: 24 * mebi},
	}
}

func TestCostsOfAnAddedPodAreThoseOfEachStep(t *testing.T) {
	t.Parallel()
	want := map[string]cost{
		"requests of the operator and di-server": {Cells: []string{"3.00", "6.00"}, Ratio: "2.00"},
		"processor of the operator":              {Cells: []string{"2.00 ms", "2.20 ms"}, Ratio: "1.10"},
		"memory of the operator":                 {Cells: []string{"10.0 KiB", "10.0 KiB"}, Ratio: "1.00"},
		"stored in etcd":                         {Cells: []string{"8.0 KiB", "8.0 KiB"}, Ratio: "1.00"},
	}
	for _, got := range costs(rungs()) {
		name := got.Name
		got.Name = ""
		if expected, checked := want[name]; checked {
			expect.Equal(t, name, expected, got)
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("costs lack %v", want)
	}
}

func TestALargeClusterIsCalculatedFromTheLastStep(t *testing.T) {
	t.Parallel()
	got := planFor(rungs(), target{Nodes: 100, Pods: 3072 + 1024, Starts: 1000})
	if got.Requests != "6000" || got.RequestsBy != "1,000 x 6.00" || got.Leases != 10 {
		t.Errorf("got %s requests from %s, and %d Leases", got.Requests, got.RequestsBy, got.Leases)
	}
	want := need{Name: "operator", Memory: "0.09 GiB", MemoryBy: "0.08 GiB + 1,024 x 10.0 KiB", Processors: "2.2", ProcessorsBy: "1,000 x 2.20 ms"}
	if diff := cmp.Diff(want, got.Needs[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFolderWithoutTheLadderIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := Files(t.TempDir()); err == nil || !strings.Contains(err.Error(), "run make bench-growth") {
		t.Errorf("got error %v", err)
	}
}
