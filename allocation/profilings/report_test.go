// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package profilings_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func parse(t *testing.T, raw string) *profilings.Report {
	t.Helper()
	report, err := profilings.Parse([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return report
}

func TestAnErrorNamesTheFieldTheValueAndWhatIsRight(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`{"version": 2}`, `profilings.version is 2: must be from 0 to 1`},
		{`{"version": -1}`, `profilings.version is -1: must be from 0 to 1`},
		{`{"version": 1, "steps": 3}`, `profilings.steps is a JSON number: must be a list`},
		{`{"version": 1, "steps": [{"nodes": 1.5}]}`, `profilings.steps.nodes is a JSON number 1.5: must be an integer`},
		{`{"version": 1, "batch": {"initial": "32"}}`, `profilings.batch.initial is a JSON string: must be an integer`},
		{`{"version": 1, "batch": {"initial": 32, "no_accumulation": 1}}`, `profilings.batch.no_accumulation is a JSON number: must be true or false`},
		{`{"version": 1, "progress": 0.5}`, `profilings.progress is a JSON number: must be an object`},
		{`{"version": 1, "progress": {"done": 1, "unit": 5}}`, `profilings.progress.unit is a JSON number: must be a string`},
		{`{"version": 1, "gradient": {"sqr": 1e999, "var": 1}}`, `profilings.gradient.sqr is a JSON number 1e999: must be a finite number`},
		{`{"version": 1, "initBatchSize": "128"}`, `profilings.initBatchSize is a JSON string: must be an integer`},
		{`[1]`, ``},
		{`{"version": 1, "steps": [{"nodes": 0, "replicas": 1, "samples": 1, "seconds": 1}]}`, `profilings.steps[0].nodes is 0: must be from 1 to 1`},
		{`{"version": 1, "steps": [{"nodes": 3, "replicas": 2, "samples": 1, "seconds": 1}]}`, `profilings.steps[0].nodes is 3: must be from 1 to 2`},
		{`{"steps": [{"nodes": 1, "replicas": 100001, "samples": 1, "seconds": 1}]}`, `profilings.steps[0].replicas is 100001: must be from 1 to 100000`},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 0, "seconds": 1}]}`, `profilings.steps[0].samples is 0: must be from 1 to 1099511627776`},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 1, "seconds": 0}]}`, `profilings.steps[0].seconds is 0: must be from 1e-07 to 100000`},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 1, "seconds": 1, "compute_seconds": 2}]}`, `profilings.steps[0].compute_seconds is 2: must be from 1e-07 to 1`},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 1, "seconds": 1, "compute_seconds": -1}]}`, `profilings.steps[0].compute_seconds is -1: must be from 1e-07 to 1`},
		{`{"throughput": [{"nodes": 1, "replicas": 0, "per_second": 1}]}`, `profilings.throughput[0].replicas is 0: must be from 1 to 100000`},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 0}]}`, `profilings.throughput[0].per_second is 0: must be from 1e-05 to 1e+12`},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 1, "batch": -4}]}`, `profilings.throughput[0].batch is -4: must be from 1 to 1099511627776`},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 1, "accumulation": -1}]}`, `profilings.throughput[0].accumulation is -1: must be from 0 to 100000`},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 1, "batch": 8}, {"nodes": 1, "replicas": 2, "per_second": 1}]}`, `profilings.throughput[1].batch is 0 and profilings.throughput[0].batch is 8: all rates must have a batch, or none`},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 0.5, "batch": 1000000}]}`, `profilings.throughput[0].per_second is 0.5: must be from 10 to 1e+13`},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 1e13}]}`, `profilings.throughput[0].per_second is 1e+13: must be from 1e-05 to 1e+12`},
		{`{"batch": {}}`, `profilings.batch.initial is 0: must be from 1 to 1099511627776`},
		{`{"batch": {"initial": 128, "max": 64}}`, `profilings.batch.max is 64: must be from 128 to 1099511627776`},
		{`{"batch": {"initial": 128, "min_per_replica": 256}}`, `profilings.batch.min_per_replica is 256: must be from 1 to 128`},
		{`{"batch": {"initial": 128, "min_per_replica": 32, "max_per_replica": 16}}`, `profilings.batch.max_per_replica is 16: must be from 32 to 1099511627776`},
		{`{"gradient": {"sqr": -1, "var": 1}}`, `profilings.gradient.sqr is -1: must be from 0 to 1e+30`},
		{`{"gradient": {"sqr": 1, "var": 1e31}}`, `profilings.gradient.var is 1e+31: must be from 0 to 1e+30`},
		{`{"progress": {"done": -1}}`, `profilings.progress.done is -1: must be from 0 to 1e+30`},
		{`{"progress": {"done": 1, "total": -1}}`, `profilings.progress.total is -1: must be from 0 to 1e+30`},
		{`{"progress": {"unit": "` + strings.Repeat("x", 65) + `"}}`, `profilings.progress.unit has 65 characters: must have at most 64`},
		{`{"initBatchSize": -1}`, `profilings.initBatchSize is -1: must be from 1 to 1099511627776`},
		{`{"initBatchSize": 64, "maxBatchSize": 32}`, `profilings.maxBatchSize is 32: must be from 64 to 1099511627776`},
		{`{"initBatchSize": 64, "localBszBounds": [1]}`, `profilings.localBszBounds has 1 number: must be [least, largest]`},
		{`{"initBatchSize": 64, "localBszBounds": [100, 200]}`, `profilings.localBszBounds[0] is 100: must be from 1 to 64`},
		{`{"initBatchSize": 64, "localBszBounds": [32, 16]}`, `profilings.localBszBounds[1] is 16: must be from 32 to 1099511627776`},
		{`{"maxProfiledReplicas": -3}`, `profilings.maxProfiledReplicas is -3: must be from 1 to 100000`},
		{`{"gradParams": {"norm": -1, "var": 1}}`, `profilings.gradParams.norm is -1: must be from 0 to 1e+30`},
		{`{"perfParams": {"alpha_c": 1, "gamma": 0.5}}`, `profilings.perfParams.gamma is 0.5: must be from 1 to 10`},
		{`{"perfParams": {"alpha_c": 1, "beta_n": -1, "gamma": 1}}`, `profilings.perfParams.beta_n is -1: must be from 0 to 100000`},
		{`{"perfParams": {"gamma": 1}}`, `profilings.perfParams.alpha_c + beta_c is 0: must be from 1e-07 to 200000`},
		{`{"a": "` + strings.Repeat("x", 1<<20) + `"}`, `profilings has 1048585 bytes: must have at most 1048576`},
		{`{"steps": `, `profilings is not JSON: unexpected end of JSON input`},
	} {
		report, err := profilings.Parse([]byte(c.raw))
		switch {
		case c.want == "":
			if err != nil {
				t.Errorf("%.80s: error %v, want none", c.raw, err)
			}
		case err == nil || err.Error() != c.want:
			t.Errorf("%.80s:\n got %v\nwant %s", c.raw, err, c.want)
		case report != nil:
			t.Errorf("%.80s: a report beside the error", c.raw)
		}
	}
}

func TestAReportOfAProgramThatDoesNotKnowTheSchemaIsIgnored(t *testing.T) {
	for _, raw := range []string{
		`{}`, `null`, `{"loss": 0.1}`, `{"step": 7, "progress": 0.5}`, `{"steps": 1000}`, `{"version": "v0.4.9", "throughput": 12}`, `{"batch": 32}`,
		`{"gradient": "0x1", "steps": [{"nodes": 1, "replicas": 1, "samples": 1, "seconds": 1}]}`,
	} {
		report := parse(t, raw)
		if seen := report.Observations(); len(seen) > 0 || report.MaxObserved() > 0 || report.Progress != nil {
			t.Errorf("%s is used: %+v", raw, report)
		}
		if bounds, has := report.Bounds(); has {
			t.Errorf("%s has batches %+v", raw, bounds)
		}
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	report := parse(t, `{"version": 1, "role": "learner", "batch": {"initial": 8, "color": "red"}, "progress": {"done": 3, "eta": [1]}}`)
	if report.Batch.Initial != 8 || report.Progress.Done != 3 {
		t.Errorf("%+v, want a batch of 8 and progress of 3", report)
	}
}

func TestNoReportHasNoModel(t *testing.T) {
	var none *profilings.Report
	if _, has := none.Bounds(); has || len(none.Observations()) > 0 || none.MaxObserved() > 0 {
		t.Errorf("no report has observations %v and replicas %d", none.Observations(), none.MaxObserved())
	}
	if noise, has := none.Noise(); has || noise != (model.Noise{Var: 1}) {
		t.Errorf("noise %+v, want none", noise)
	}
	if _, has := none.Parameters(); has {
		t.Error("no report has parameters")
	}
}

func TestTheNewestOfEqualConfigurationsWins(t *testing.T) {
	report := parse(t, `{"version": 1, "steps": [
		{"nodes": 1, "replicas": 2, "samples": 32, "seconds": 9, "compute_seconds": 8},
		{"nodes": 1, "replicas": 1, "samples": 32, "seconds": 0.1},
		{"nodes": 1, "replicas": 2, "samples": 32, "seconds": 0.15, "compute_seconds": 0.1}]}`)
	want := []model.Observation{
		{Nodes: 1, Replicas: 1, Atomic: 32, Step: 0.1, Accumulate: 0.1},
		{Nodes: 1, Replicas: 2, Atomic: 32, Step: 0.15, Accumulate: 0.1},
	}
	if diff := cmp.Diff(want, report.Observations()); diff != "" {
		t.Error(diff)
	}
}

func TestTheNewest64ConfigurationsCount(t *testing.T) {
	report := &profilings.Report{}
	for replicas := 1; replicas <= 200; replicas++ {
		report.Steps = append(report.Steps, profilings.Step{Nodes: 1, Replicas: replicas, Samples: 8, Seconds: 1, ComputeSeconds: 1})
	}
	seen := report.Observations()
	if len(seen) != allocation.MaxObservations || seen[0].Replicas != 200-allocation.MaxObservations+1 {
		t.Errorf("%d observations from %d replicas, want the last %d", len(seen), seen[0].Replicas, allocation.MaxObservations)
	}
	if report.MaxObserved() != 200 {
		t.Errorf("%d replicas observed, want 200", report.MaxObserved())
	}
}

func TestTheOrderOfEqualMeasurementsDoesNotMatter(t *testing.T) {
	steps := []profilings.Step{
		{Nodes: 2, Replicas: 8, Samples: 16, Seconds: 0.3}, {Nodes: 1, Replicas: 1, Samples: 64, Seconds: 0.4}, {Nodes: 1, Replicas: 4, Samples: 16, Seconds: 0.2},
	}
	forth := (&profilings.Report{Steps: steps}).Observations()
	back := slices.Clone(steps)
	slices.Reverse(back)
	if diff := cmp.Diff(forth, (&profilings.Report{Steps: back}).Observations()); diff != "" {
		t.Error(diff)
	}
}

func TestAComputeTimeThatIsNotMeasuredIsThatOfTheMostSimilarBatch(t *testing.T) {
	report := parse(t, `{"version": 1, "steps": [
		{"nodes": 1, "replicas": 1, "samples": 64, "seconds": 0.20},
		{"nodes": 1, "replicas": 1, "samples": 16, "seconds": 0.08},
		{"nodes": 1, "replicas": 4, "samples": 32, "seconds": 0.15, "compute_seconds": 0.11},
		{"nodes": 1, "replicas": 4, "samples": 16, "seconds": 0.10},
		{"nodes": 2, "replicas": 8, "samples": 8, "seconds": 0.03}]}`)
	want := []float64{0.08, 0.20, 0.08, 0.11, 0.03}
	for i, seen := range report.Observations() {
		if math.Abs(seen.Accumulate-want[i]) > 1e-12 {
			t.Errorf("%+v: a pass computes for %g s, want %g s", seen, seen.Accumulate, want[i])
		}
	}
}

func TestBoundsHaveDefaults(t *testing.T) {
	const each = 100_000
	for _, c := range []struct {
		raw  string
		want model.Bounds
	}{
		{`{"batch": {"initial": 128}}`, model.Bounds{Initial: 128, Max: 128, MinAtomic: 1, MaxAtomic: 128}},
		{`{"batch": {"initial": 128, "max": 4096}}`, model.Bounds{Initial: 128, Max: 4096, MinAtomic: 1, MaxAtomic: 4096}},
		{`{"batch": {"initial": 128, "max": 4096, "min_per_replica": 16, "max_per_replica": 256, "no_accumulation": true}}`,
			model.Bounds{Initial: 128, Max: 4096, MinAtomic: 16, MaxAtomic: 256, NoAccumulation: true}},
		{`{"initBatchSize": 128, "maxBatchSize": null, "localBszBounds": null, "gradParams": null}`,
			model.Bounds{Initial: 128, Max: 128, MinAtomic: 1, MaxAtomic: 128, NoAccumulation: true}},
		{`{"initBatchSize": 128, "maxBatchSize": 1280, "localBszBounds": [32, null], "gradientAccumulation": true}`,
			model.Bounds{Initial: 128, Max: 1280, MinAtomic: 32, MaxAtomic: 1280}},
		{`{"initBatchSize": 0, "globalBatchSize": 512, "localBszBounds": [32, 256], "gradientAccumulation": true}`,
			model.Bounds{Initial: 512, Max: 512, MinAtomic: 32, MaxAtomic: 256}},
		{`{"batch": {"initial": 8}, "initBatchSize": 128}`, model.Bounds{Initial: 8, Max: 8, MinAtomic: 1, MaxAtomic: 8}},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 32, "seconds": 1}]}`,
			model.Bounds{Initial: 32, Max: 32 * each, MinAtomic: 32, MaxAtomic: 32, NoAccumulation: true}},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 16, "seconds": 1}, {"nodes": 1, "replicas": 4, "samples": 32, "seconds": 1}]}`,
			model.Bounds{Initial: 32, Max: 32 * each, MinAtomic: 32, MaxAtomic: 32, NoAccumulation: true}},
		{`{"steps": [{"nodes": 1, "replicas": 1, "samples": 128, "seconds": 1}, {"nodes": 1, "replicas": 3, "samples": 43, "seconds": 1}]}`,
			model.Bounds{Initial: 128, Max: 128, MinAtomic: 1, MaxAtomic: 128, NoAccumulation: true}},
		{`{"throughput": [{"nodes": 1, "replicas": 1, "per_second": 5}, {"nodes": 1, "replicas": 8, "per_second": 30}]}`,
			model.Bounds{Initial: 1, Max: each, MinAtomic: 1, MaxAtomic: 1, NoAccumulation: true}},
	} {
		got, has := parse(t, c.raw).Bounds()
		if diff := cmp.Diff(c.want, got); diff != "" || !has {
			t.Errorf("%s: %s", c.raw, diff)
		}
	}
}

func TestNoiseCountsBesideABatch(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want model.Noise
		has  bool
	}{
		{`{"batch": {"initial": 8}, "gradient": {"sqr": 0.5, "var": 3}}`, model.Noise{Sqr: 0.5, Var: 3}, true},
		{`{"initBatchSize": 8, "gradParams": {"norm": 0.25, "var": 2}}`, model.Noise{Sqr: 0.25, Var: 2}, true},
		{`{"gradient": {"sqr": 0.5, "var": 3}}`, model.Noise{Var: 1}, false},
		{`{"batch": {"initial": 8}}`, model.Noise{Var: 1}, false},
	} {
		if got, has := parse(t, c.raw).Noise(); got != c.want || has != c.has {
			t.Errorf("%s: %+v, %t, want %+v, %t", c.raw, got, has, c.want, c.has)
		}
	}
}

func TestTheParametersOfAdaptDLAreTheThroughput(t *testing.T) {
	const hints = `"initBatchSize": 128, "localBszBounds": [64, 256], "globalBatchSize": null, "maxBatchSize": 1280, "maxProfiledReplicas": 4, "gradientAccumulation": false,
		"gradParams": {"norm": 0.00136, "var": 0.00503},
		"perfParams": {"alpha_c": 0.121, "beta_c": 0.00568, "alpha_n": 0.0236, "beta_n": 0.00634, "alpha_r": 0.0118, "beta_r": 0.00317, "gamma": 1.14}`
	report := parse(t, "{"+hints+"}")
	want := model.Throughput{AlphaC: 0.121, BetaC: 0.00568, AlphaN: 0.0236, BetaN: 0.00634, AlphaR: 0.0118, BetaR: 0.00317, Gamma: 1.14}
	if got, has := report.Parameters(); !has || got != want || report.MaxObserved() != 4 || len(report.Observations()) > 0 {
		t.Errorf("%+v after %d replicas, want %+v after 4", got, report.MaxObserved(), want)
	}
	measured := parse(t, `{"steps": [{"nodes": 1, "replicas": 6, "samples": 32, "seconds": 1}], `+hints+"}")
	if got, has := measured.Parameters(); has || measured.MaxObserved() != 6 {
		t.Errorf("parameters %+v count beside measurements, or replicas do not: %d", got, measured.MaxObserved())
	}
}

// speeds returns the modelled speed of replica counts relative to one replica, on nodes of 4.
func speeds(t *testing.T, report *profilings.Report, replicas ...int) []float64 {
	t.Helper()
	bounds, has := report.Bounds()
	if !has {
		t.Fatal("no bounds")
	}
	noise, _ := report.Noise()
	g := model.Goodput{Throughput: model.Fit(report.Observations(), nil), Noise: noise, Bounds: bounds}
	_, one := g.Best(1, 1)
	var all []float64
	for _, k := range replicas {
		_, value := g.Best((k+3)/4, k)
		all = append(all, value/one)
	}
	return all
}

func TestRatesAloneShowTheSpeedup(t *testing.T) {
	for name, given := range map[string]string{
		"in any unit":        `{"nodes": 1, "replicas": 1, "per_second": 100}, {"nodes": 1, "replicas": 2, "per_second": 180}, {"nodes": 1, "replicas": 4, "per_second": 300}`,
		"a batch each":       `{"nodes": 1, "replicas": 1, "batch": 32, "per_second": 100}, {"nodes": 1, "replicas": 2, "batch": 64, "per_second": 180}, {"nodes": 1, "replicas": 4, "batch": 128, "per_second": 300}`,
		"with accumulation":  `{"nodes": 1, "replicas": 1, "batch": 64, "accumulation": 1, "per_second": 100}, {"nodes": 1, "replicas": 2, "batch": 64, "per_second": 180}, {"nodes": 1, "replicas": 4, "batch": 128, "per_second": 300}`,
		"that are very low":  `{"nodes": 1, "replicas": 1, "per_second": 1e-4}, {"nodes": 1, "replicas": 2, "per_second": 1.8e-4}, {"nodes": 1, "replicas": 4, "per_second": 3e-4}`,
		"that are very high": `{"nodes": 1, "replicas": 1, "per_second": 1e9}, {"nodes": 1, "replicas": 2, "per_second": 1.8e9}, {"nodes": 1, "replicas": 4, "per_second": 3e9}`,
	} {
		got := speeds(t, parse(t, `{"version": 1, "throughput": [`+given+`]}`), 1, 2, 4)
		for i, want := range []float64{1, 1.8, 3} {
			if math.Abs(got[i]-want) > 0.1*want {
				t.Errorf("rates %s: speedups %.2f, want 1, 1.8, 3 within 10 %%", name, got)
				break
			}
		}
	}
}

func TestAJobOfOneTotalBatchStopsScaling(t *testing.T) {
	// A pass takes 10 ms and 1 ms per sample; a network adds 30 ms.
	report := parse(t, `{"version": 1, "steps": [
		{"nodes": 1, "replicas": 1, "samples": 128, "seconds": 0.138}, {"nodes": 1, "replicas": 2, "samples": 64, "seconds": 0.104, "compute_seconds": 0.074},
		{"nodes": 1, "replicas": 4, "samples": 32, "seconds": 0.072, "compute_seconds": 0.042}, {"nodes": 2, "replicas": 8, "samples": 16, "seconds": 0.056, "compute_seconds": 0.026}]}`)
	got := speeds(t, report, 4, 16, 64)
	if got[0] < 1.7 || got[0] > 2.1 || got[2] > 1.5*got[1] {
		t.Errorf("speedups %.2f with 4, 16 and 64 replicas, want 1.9 with 4 and little more beyond", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"version": 1}`, `{"loss": 0.1, "steps": 7}`,
		`{"version": 1, "batch": {"initial": 128, "max": 4096, "max_per_replica": 256}, "steps": [{"nodes": 1, "replicas": 2, "samples": 32, "seconds": 0.1, "compute_seconds": 0.05}],
		"gradient": {"sqr": 0.1, "var": 3}, "progress": {"done": 5, "total": 10, "unit": "epoch"}}`,
		`{"throughput": [{"nodes": 1, "replicas": 3, "batch": 7, "accumulation": 2, "per_second": 1e-3}]}`,
		`{"throughput": [{"nodes": 1, "replicas": 3, "per_second": 1e12}, {"nodes": 2, "replicas": 100000, "accumulation": 100000, "per_second": 1}]}`,
		`{"initBatchSize": 128, "localBszBounds": [1, null], "perfParams": {"alpha_c": 1e-7, "gamma": 10}, "gradParams": {"norm": 0, "var": 0}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		report, err := profilings.Parse(raw)
		if err != nil {
			if report != nil || !strings.HasPrefix(err.Error(), "profilings") {
				t.Fatalf("%s: error %v with report %v", raw, err, report)
			}
			return
		}
		if err := checkUsable(report); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		encoded, err := json.Marshal(report)
		expect.NoError(t, err)
		again, err := profilings.Parse(encoded)
		if err != nil {
			t.Fatalf("%s is read, but %s is not: %v", raw, encoded, err)
		}
		if diff := cmp.Diff(report.Observations(), again.Observations()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// checkUsable returns what a model cannot be made of.
func checkUsable(report *profilings.Report) error {
	bounds, has := report.Bounds()
	if has && (bounds.Initial < 1 || bounds.Max < bounds.Initial || bounds.MinAtomic < 1 || bounds.MaxAtomic < bounds.MinAtomic) {
		return fmt.Errorf("bounds %+v", bounds)
	}
	observations := report.Observations()
	if len(observations) > allocation.MaxObservations {
		return fmt.Errorf("%d observations", len(observations))
	}
	for i := range observations {
		if !isUsable(&observations[i]) || observations[i].Replicas > report.MaxObserved() {
			return fmt.Errorf("observation %+v", observations[i])
		}
	}
	throughput, isFitted := report.Parameters()
	if len(observations) > 0 {
		throughput, isFitted = model.Fit(observations, nil), true
	}
	if !isFitted || !has {
		return nil
	}
	noise, _ := report.Noise()
	return checkGoodput(&model.Goodput{Throughput: throughput, Noise: noise, Bounds: bounds})
}

func isUsable(o *model.Observation) bool {
	return o.Nodes >= 1 && o.Replicas >= o.Nodes && o.Atomic >= 1 && o.Accumulate > 0 && o.Step >= o.Accumulate && !math.IsInf(o.Step, 0)
}

func checkGoodput(goodput *model.Goodput) error {
	for _, replicas := range []int{1, 4, 1000} {
		if _, value := goodput.Best((replicas+3)/4, replicas); math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			return fmt.Errorf("goodput of %d replicas is %g", replicas, value)
		}
	}
	return nil
}
