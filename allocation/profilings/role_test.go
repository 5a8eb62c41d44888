// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings_test

import (
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/allocation/profilings"
)

func TestAReportWithVersionAndRoleIsThatOfAWorker(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		`{"version": 1, "role": "collector"}`:  true,
		`{"role": "collector"}`:                false,
		`{"version": 1, "role": null}`:         false,
		`{"version": 1, "steps": []}`:          false,
		`{"version": 1, "role": "a", "x": {}}`: true,
	} {
		if _, is, err := profilings.ParseRole([]byte(raw)); is != want || err != nil {
			t.Errorf("%s: got %t and error %v, want %t", raw, is, err, want)
		}
	}
}

func TestTheBatchOfAWorkerIsANumberUnderEitherName(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]float64{
		`{"version": 1, "role": "learner", "batch": 8000}`:                           8000,
		`{"version": 1, "role": "learner", "batch_samples": 8000}`:                   8000,
		`{"version": 1, "role": "learner", "batch_samples": 8, "batch": {"max": 1}}`: 8,
	} {
		report, _, err := profilings.ParseRole([]byte(raw))
		if err != nil || report.BatchSamples != want {
			t.Errorf("%s: got %+v and error %v, want %g", raw, report, err, want)
		}
	}
}

func TestTheErrorOfAWorkersReportNamesFieldValueAndBounds(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"version": 1, "role": "Learner!"}`:                                   `profilings.role is "Learner!": must be the name or the type of a task`,
		`{"version": 2, "role": "learner"}`:                                    `profilings.version is 2: must be from 1 to 1`,
		`{"version": 1, "role": "learner", "rank": -1}`:                        `profilings.rank is -1: must be from 0 to 99999`,
		`{"version": 1, "role": "learner", "busy_seconds": -1}`:                `profilings.busy_seconds is -1: must be from 0 to 1e+12`,
		`{"version": 1, "role": "learner", "queue": "long"}`:                   `profilings.queue is a JSON string: must be a finite number`,
		`{"version": 1, "role": "learner", "batch": 8, "batch_samples": 8}`:    `profilings.batch is 8 beside profilings.batch_samples: must be one of both`,
		`{"version": 1, "role": "learner", "batch": true}`:                     `profilings.batch is no number: must be the samples of a step`,
		`{"version": 1, "role": "` + strings.Repeat("a", 64) + `"}`:            `must be the name or the type of a task`,
		`{"version": 1, "role": "learner", "samples": 1e300, "queue": 100000}`: `profilings.samples is 1e+300: must be from 0 to`,
	} {
		if _, is, err := profilings.ParseRole([]byte(raw)); !is || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", raw, err, want)
		}
	}
}

func FuzzRole(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"role":"learner","samples":12,"busy_seconds":3.5,"batch":8000}`, `{"version":1,"role":"learner","batch":{"max":1}}`,
		`{"version":1,"role":"collector","rank":3,"time":1e12}`, `{"version":1,"role":"learner","queue":1e400}`, `{"role":"a"}`, `null`, `[]`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		report, is, err := profilings.ParseRole([]byte(content))
		if err != nil {
			if len(err.Error()) > 16<<10+len(content) {
				t.Fatalf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		if !is {
			return
		}
		for _, number := range []float64{
			report.Time, report.Samples, report.BusySeconds, report.BlockedSeconds, report.StarvedSeconds, report.PolicyVersion, report.InFlight,
			report.Queue, report.QueueCapacity, report.BatchSamples, report.MaxStaleness, report.StalenessMean, report.StalenessMax, report.ReplayRatio,
		} {
			if !(number >= 0 && number <= 1e18) {
				t.Fatalf("%q is accepted as %+v", content, report)
			}
		}
	})
}
