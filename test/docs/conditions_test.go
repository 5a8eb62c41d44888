// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/testkit"
)

// declared is where the API declares its conditions and reasons.
const declared = "apis/v2alpha1/constants.go"

// untold are the condition types that no job has.
func untold() []string {
	return []string{string(v2alpha1.JobUnknown)}
}

func TestTheTableOfConditionsHasAllConditionsAndReasons(t *testing.T) {
	table := conditionTable(t)
	known := constants(t, declared, "Condition", "Job")
	for _, condition := range known {
		if _, isTold := table[condition]; isTold == slices.Contains(untold(), condition) {
			t.Errorf("condition %s: in the table: %v", condition, isTold)
		}
	}
	reasons := append(constants(t, declared, "Reason"), known...)
	for condition, ofIt := range table {
		if !slices.Contains(known, condition) {
			t.Errorf("the API has no condition %s", condition)
		}
		for _, reason := range ofIt {
			if !slices.Contains(reasons, reason) {
				t.Errorf("condition %s: the API has no reason %s", condition, reason)
			}
		}
	}
	events, err := testkit.DocumentedEvents()
	if err != nil {
		t.Fatal(err)
	}
	for reason, event := range events {
		for _, condition := range event.Conditions {
			if !slices.Contains(table[condition], reason) {
				t.Errorf("docs/events.md: reason %s goes with condition %s, which has no such reason in the table", reason, condition)
			}
		}
	}
}

// conditionTable reads the table of docs/concepts.md: the reasons of each
// condition.
func conditionTable(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "concepts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "| condition | reasons | says |\n")
	table, _, _ := strings.Cut(after, "\n\n")
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (`[^|]*`) \\|")
	name := regexp.MustCompile("`([^`]+)`")
	found := map[string][]string{}
	for _, cells := range row.FindAllStringSubmatch(table, -1) {
		for _, reason := range name.FindAllStringSubmatch(cells[2], -1) {
			found[cells[1]] = append(found[cells[1]], reason[1])
		}
	}
	return found
}
