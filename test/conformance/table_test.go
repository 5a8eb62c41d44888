// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "write docs/conformance.md")

func TestThePageShowsTheTable(t *testing.T) {
	path := filepath.Join(testkit.Root(), "docs", "conformance.md")
	page, err := Page()
	expect.NoError(t, err)
	if *update {
		expect.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	}
	content, err := os.ReadFile(path)
	expect.NoError(t, err)
	if string(content) != page {
		t.Errorf("%s is not that of the table: go test ./test/conformance -update", path)
	}
}

func TestWhatIsRecordedOfDIEngineIsComplete(t *testing.T) {
	engine, err := DIEngine()
	expect.NoError(t, err)
	for _, call := range engine.Calls {
		var body map[string]any
		if err := json.Unmarshal([]byte(call.Body), &body); err != nil {
			t.Errorf("%s: body %q: %v", call.Does, call.Body, err)
		}
		if call.Program == "" || call.Since == "" || call.Source == "" || call.Method == "" || !strings.HasPrefix(call.Path, "/v1alpha1/") || engine.Headers[call.Headers] == nil {
			t.Errorf("%s: a field is missing: %+v", call.Does, call)
		}
	}
	for _, variable := range engine.Variables {
		if _, err := regexp.Compile(variable.Value); err != nil || variable.Program == "" || variable.Since == "" || variable.Source == "" || variable.Value == "" {
			t.Errorf("%s: a field is missing: %+v: %v", variable.Name, variable, err)
		}
	}
}

func TestEveryCellThatDoesNotRunSaysWhy(t *testing.T) {
	names := map[string]bool{}
	for _, cell := range Table() {
		if outcome := cell.Outcome(); outcome.Kind != Runs && outcome.Text == "" {
			t.Errorf("%s: the outcome has no text", cell.Sentence())
		}
		if name := cell.Sentence(); names[name] {
			t.Errorf("two cells have the name %q", name)
		} else {
			names[name] = true
		}
	}
}

func TestEveryRuleDecidesAboutACell(t *testing.T) {
	for _, capability := range Capabilities() {
		alone := capability
		for i := range capability.rules {
			alone.rules = capability.rules[:i]
			before := outcomes(&alone)
			alone.rules = capability.rules[:i+1]
			if after := outcomes(&alone); before == after {
				t.Errorf("%s: rule %d (%q) decides about no cell", capability.Name, i, capability.rules[i].outcome.Text)
			}
		}
	}
}

// outcomes counts the cells of a capability that no rule decides about.
func outcomes(capability *Capability) (open int) {
	for _, lifecycle := range Lifecycles() {
		for _, version := range Versions() {
			for _, caller := range Callers() {
				if (Cell{capability, lifecycle, version, caller}).Outcome().Kind == Runs {
					open++
				}
			}
		}
	}
	return open
}
