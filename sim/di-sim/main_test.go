// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/sim/di-sim/internal/experiment"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const invented = "../simulator/testdata/traces"

// runSim runs the command on the invented traces.
func runSim(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(append([]string{"-traces", invented}, args...), &out, io.Discard)
	return out.String(), err
}

func TestTheTableHasARowForEachPolicyLoadAndReport(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "-policy", "goodput,tiresias", "-rows", "blind,both", "-loads", "1.0,2.0", "-workloads", "1")
	expect.NoError(t, err)
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line)[:3], " "))
	}
	want := "load policy row|1.0 goodput blind|1.0 goodput both|1.0 tiresias -|2.0 goodput blind|2.0 goodput both|2.0 tiresias -"
	if got := strings.Join(rows, "|"); got != want {
		t.Errorf("rows are %s, want %s", got, want)
	}
}

func TestTenantsShareAnHourByWeight(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "-policy", "goodput,fit", "-rows", "blind", "-loads", "2.0", "-workloads", "1", "-nodes", "2", "-tenants", "a=3,b=1")
	expect.NoError(t, err)
	_, shares, _ := strings.Cut(out, "of its entitlement")
	var rows []string
	for line := range strings.Lines(shares) {
		if fields := strings.Fields(line); len(fields) == 9 {
			rows = append(rows, strings.Join([]string{fields[2], fields[4], fields[5], fields[7]}, " "))
		}
	}
	expect.Equal(t, "policy, minutes, tenant and share", []string{"goodput 60 a 0.750", "goodput 60 b 0.250", "fit 60 a 0.750", "fit 60 b 0.250"}, rows)
}

func TestACheckComparesEachJobWithItsRecordedTime(t *testing.T) {
	t.Parallel()
	out, err := runSim(t, "-policy", "tiresias,optimus", "-loads", "1.0,2.0", "-workloads", "1", "-check")
	if err != nil || !strings.Contains(out, "tiresias, load 1.0: 40 of 40 jobs exact, mean 1.0000") {
		t.Fatalf("check: %v\n%s", err, out)
	}
	directory := t.TempDir()
	expect.NoError(t, os.CopyFS(directory, os.DirFS(invented)))
	path := filepath.Join(directory, "recorded-jct.json")
	content, err := os.ReadFile(path)
	expect.NoError(t, err)
	var recorded map[string]map[string]map[string]int
	expect.NoError(t, json.Unmarshal(content, &recorded))
	times := recorded["tiresias-1.0"]["workload-1"]
	for name := range times {
		times[name]++
		break
	}
	for name := range recorded["optimus-1.0"]["workload-1"] {
		recorded["optimus-1.0"]["workload-1"][name] += 20
	}
	if content, err = json.Marshal(recorded); err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	expect.NoError(t, err)
	var changed strings.Builder
	err = run([]string{"-traces", directory, "-policy", "tiresias,optimus", "-workloads", "1", "-check"}, &changed, io.Discard)
	if err == nil || err.Error() != "2 differences from recorded-jct.json" {
		t.Errorf("error is %v, want one about 2 differences\n%s", err, changed.String())
	}
	for _, want := range []string{"39 of 40 jobs exact", "tiresias, load 1.0, workload-1: job ", "optimus, load 1.0: the mean is 0.98"} {
		if !strings.Contains(changed.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, changed.String())
		}
	}
}

func TestResultsAreWrittenAsJSONAndPlots(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file, plots := filepath.Join(directory, "results.json"), filepath.Join(directory, "plots")
	if _, err := runSim(t, "-policy", "goodput,sia", "-rows", "blind", "-workloads", "1", "-json", file, "-plots", plots); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	expect.NoError(t, err)
	var outcomes []experiment.Outcome
	expect.NoError(t, json.Unmarshal(content, &outcomes))
	if len(outcomes) != 2 || outcomes[0].Row != "blind" || len(outcomes[1].Results[0].Jobs) != 40 || outcomes[1].Summary.Mean <= 0 {
		t.Errorf("the JSON has %d outcomes: %.300s", len(outcomes), content)
	}
	for _, name := range []string{"jct-1.0.svg", "gpus-1.0-goodput-blind.svg", "gpus-1.0-sia.svg"} {
		if err := isSVG(filepath.Join(plots, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// isSVG reads a file as XML with a root of svg.
func isSVG(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	decoder, root := xml.NewDecoder(file), ""
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if element, is := token.(xml.StartElement); is && root == "" {
			root = element.Name.Local
		}
	}
	if root != "svg" {
		return errors.New("the root is " + root)
	}
	return nil
}

func TestErrorsNameTheFlagTheValueAndWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`-policy is "best": there is no policy "best": must be one of goodput, fit, tiresias, optimus, pollux, sia`: {"-policy", "best"},
		`-rows is "all": there is no row "all": must be one of blind, progress, history, both`:                      {"-rows", "all"},
		`-loads is "3.0": there is no load "3.0"`:                                                                   {"-loads", "3.0"},
		"-loads is empty: must have a name":                                                                         {"-loads", ","},
		"-lie is 0: must be from 0.01 to 100":                                                                       {"-lie", "0"},
		"-lose is 1: must be from 0 to 0.9":                                                                         {"-policy", "fit", "-lose", "1"},
		"-lose is NaN: must be from 0 to 0.9":                                                                       {"-policy", "fit", "-lose", "NaN"},
		"-lose is 0.3: must be 0 with -policy tiresias, which knows no lost nodes":                                  {"-policy", "fit,tiresias", "-lose", "0.3"},
		`-tenants is "a=0": must have at most 64 names, each once, with a weight from 1 to 1000, such as a=3,b=1`:   {"-policy", "goodput", "-tenants", "a=0"},
		`-tenants is "a=1,a=2": must have`:                                                                          {"-policy", "goodput", "-tenants", "a=1,a=2"},
		`-tenants is "a=1": must be empty with -policy sia`:                                                         {"-policy", "sia", "-tenants", "a=1"},
		`-tenants is "a=1": must be empty with -cluster, -check and -goals`:                                         {"-policy", "goodput", "-check", "-tenants", "a=1"},
		"-restart-cost is -1: must be from 0 to 86400":                                                              {"-restart-cost", "-1"},
		"-fairness is 2: must be from 0 to 1":                                                                       {"-fairness", "2"},
		"-check has nothing to compare":                                                                             {"-policy", "pollux", "-workloads", "1", "-check"},
		"-check compares with results by the rules of the artifact":                                                 {"-check", "-early-stop"},
		`-parts is "tail": there is no part "tail": must be one of baselines, pollux, rows`:                         {"-parts", "tail"},
		"-factor is 0: must be from 1 to 1000":                                                                      {"-factor", "0"},
		"-operator-life is -1: must be 0 or more":                                                                   {"-operator-life", "-1"},
		"-policy tiresias: must be a policy of the operator with -cluster, goodput or fit":                          {"-policy", "fit,tiresias", "-cluster"},
		"-cluster: must be without -lose, -check and -goals":                                                        {"-policy", "fit", "-check", "-cluster"},
		`argument "more": must be a flag`:                                                                           {"more"},
		`must be a directory with applications/, grid-aws/ and workloads-LOAD/: listing applications`:               {"-traces", "nowhere"},
		"-traces is empty: must be a directory of traces":                                                           {"-traces", ""},
		"-json is": {"-policy", "tiresias", "-workloads", "1", "-json", "nowhere/results.json"},
	} {
		if _, err := runSim(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error is %v, want one with %q", args, err, want)
		}
	}
}

func TestRulesChangeTheResults(t *testing.T) {
	t.Parallel()
	usual, err := runSim(t, "-policy", "fit", "-workloads", "1")
	expect.NoError(t, err)
	for _, args := range [][]string{{"-early-stop"}, {"-lose", "0.3"}, {"-restart-cost", "300"}, {"-nodes", "8"}} {
		changed, err := runSim(t, append(args, "-policy", "fit", "-workloads", "1")...)
		expect.NoError(t, err)
		if meanOf(changed) == meanOf(usual) {
			t.Errorf("%v changes nothing:\n%s", args, changed)
		}
	}
}

// meanOf returns the mean of the first row of a table.
func meanOf(table string) string {
	_, row, _ := strings.Cut(table, "\n")
	return strings.Fields(row)[3]
}

func TestTheRatioTableHasEachRuleBesideTheOperators(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	var out strings.Builder
	err := run([]string{"ratio", "-scenario", "slow learner", "-seeds", "1", "-plots", directory, "-json", filepath.Join(directory, "all.json")}, &out, io.Discard)
	expect.NoError(t, err)
	if lines := strings.Count(out.String(), "\n"); lines != 7 || !strings.Contains(out.String(), "slow learner  ratio rule") || !strings.Contains(out.String(), "true ratio") {
		t.Errorf("the table is\n%s\nwant a heading, five rules and the right size", out.String())
	}
	for _, name := range []string{"all.json", "ratio-slow-learner.svg"} {
		if _, err := os.Stat(filepath.Join(directory, name)); err != nil {
			t.Error(err)
		}
	}
	for _, args := range [][]string{{"-scenario", "nothing"}, {"-seeds", "0"}, {"-noise", "NaN"}, {"-step-seconds", "0"}, {"-episode-seconds", "601"}, {"-sender", "pigeon"}, {"more"}} {
		if err := run(append([]string{"ratio"}, args...), io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted, want an error", args)
		}
	}
}

// meansOf runs goodput on a mixed cluster of the invented applications, and returns the mean of each row.
func meansOf(t *testing.T, rows string) map[string]float64 {
	t.Helper()
	out, err := runSim(t, "-types", "../simulator/testdata/types.json", "-mix", "slow=5,fast=3", "-policy", "goodput", "-rows", rows, "-loads", "2.0")
	expect.NoError(t, err)
	means := map[string]float64{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); fields[0] != "load" {
			means[fields[2]], err = strconv.ParseFloat(fields[3], 64)
			expect.NoError(t, err)
		}
	}
	return means
}

func TestAPolicyThatKnowsTypesIsBetterThanOneThatDoesNot(t *testing.T) {
	t.Parallel()
	means := meansOf(t, "blind,pinned,types")
	if !(means["types"] < 0.9*means["blind"] && means["types"] < 0.8*means["pinned"]) {
		t.Errorf("means are %v, want that of types at most 0.9 of blind and 0.8 of pinned", means)
	}
}

func TestAMixMustBeOfKnownTypes(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`there is no type "huge": must be of fast, slow`: {"-types", "../simulator/testdata/types.json", "-mix", "huge=2", "-policy", "goodput"},
		`-mix is "slow=0"`:               {"-types", "../simulator/testdata/types.json", "-mix", "slow=0", "-policy", "goodput"},
		`must be empty with -policy sia`: {"-types", "../simulator/testdata/types.json", "-policy", "sia"},
		`must not, without -types`:       {"-rows", "types", "-policy", "goodput"},
		`must be empty with -cluster`:    {"-types", "../simulator/testdata/types.json", "-policy", "goodput", "-check"},
		`finding nowhere.json`:           {"-types", "nowhere.json", "-mix", "slow=1", "-policy", "goodput"},
	} {
		if _, err := runSim(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error is %v, want %s", args, err, want)
		}
	}
}
