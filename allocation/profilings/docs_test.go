// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// page is the documentation of the schema.
const page = "../../docs/profilings.md"

func TestTheExamplesOfTheDocsAreReadWhole(t *testing.T) {
	content, err := os.ReadFile(page)
	expect.NoError(t, err)
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(content), -1)
	if len(examples) < 6 {
		t.Fatalf("%s has %d examples, want one of each part", page, len(examples))
	}
	for _, example := range examples {
		report := parse(t, example[1])
		for part, has := range map[string]bool{
			`"batch": {`:    report.Batch != nil,
			`"steps"`:       len(report.Steps) > 0 && len(report.Observations()) == len(report.Steps),
			`"throughput"`:  len(report.Throughput) > 0 && len(report.Observations()) == len(report.Throughput),
			`"gradient": {`: report.Gradient != nil,
			`"progress"`:    report.Progress != nil,
			`"perfParams"`:  report.PerfParams != nil && report.MaxObserved() == 4,
		} {
			if strings.Contains(example[1], part) != has {
				t.Errorf("%s: part %s is not read", example[1], part)
			}
		}
	}
}

func TestTheErrorOfTheDocsIsTheErrorOfTheParser(t *testing.T) {
	content, err := os.ReadFile(page)
	expect.NoError(t, err)
	_, err = profilings.Parse([]byte(`{"version": 1, "steps": [{"nodes": 1, "replicas": 1, "samples": 8, "seconds": -0.2}]}`))
	if err == nil || !strings.Contains(string(content), "\n"+err.Error()+"\n") {
		t.Errorf("%s lacks the error %v", page, err)
	}
}
