// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// documented returns the maximums by the names of their constants, with the beginning of their row in
// docs/limits.md.
func documented() map[string]struct {
	row   string
	value int
} {
	return map[string]struct {
		row   string
		value int
	}{
		"PodsPerJob":     {"pods of a job", PodsPerJob},
		"Replicas":       {"`replicas` of a task", Replicas},
		"Tasks":          {"tasks of a job", Tasks},
		"Volumes":        {"volumes of a job", Volumes},
		"FailureRules":   {"rules of a `failurePolicy`", FailureRules},
		"TaskNames":      {"tasks that a rule or a `successPolicy` names", TaskNames},
		"ExitCodes":      {"exit codes of a rule", ExitCodes},
		"ClusterSpecs":   {"frameworks in `spec.clusterSpec`", ClusterSpecs},
		"SlotsPerWorker": {"`slotsPerWorker` of an MPI job", SlotsPerWorker},
		"Seconds":        {"`activeDeadlineSeconds`", Seconds},
		"NameLength":     {"names of objects", NameLength},
		"LabelLength":    {"names in host names", LabelLength},
		"FreeTextLength": {"free texts", FreeTextLength},
		"RestartsAhead":  {"restarts that a pod records", RestartsAhead},
		"RanksLength":    {"bytes of recorded ranks", RanksLength},
		"GrowthGroups":   {"groups of replicas that are added to a queued job", GrowthGroups},
		"Conditions":     {"conditions of a job", Conditions},
		"Counted":        {"counts in one summary", Counted},
		"Named":          {"items that one condition or event names", Named},
		"MessageLength":  {"bytes of one such item", MessageLength},
		"Refusals":       {"recorded refusals of a job's membership", Refusals},
		"Members":        {"members of a Membership", Members},
		"GPUs":           {"GPUs of a learner", GPUs},
		"Losses":         {"losses and reports of one member", Losses},
		"LostListed":     {"lost pods of a job whose URLs are still advertised", LostListed},
		"Roles":          {"roles that workers of a job report", Roles},
		"Rates":          {"sums of reports in the status", Rates},
		"Requests":       {"recorded requests of a job", Requests},
		"RecordedURLs":   {"URLs in one recorded answer", RecordedURLs},
		"Ports":          {"changes of a slot's port", Ports},

		"Producers":         {"producers of a ratio rule", Producers},
		"Staleness":         {"versions of a policy that a sample may be old", Staleness},
		"GrowthPercent":     {"`growthPercent`", GrowthPercent},
		"ShrinkPercent":     {"`shrinkPercent`", ShrinkPercent},
		"PendingSeconds":    {"`afterSeconds`", PendingSeconds},
		"ScalingSeconds":    {"`deadlineSeconds` of a ScalePlan", ScalingSeconds},
		"PlanPods":          {"pods that each list of a ScalePlan names", PlanPods},
		"ResourceOverrides": {"tasks and replicas of a job with resources of their own", ResourceOverrides},
		"PlanConditions":    {"conditions of a ScalePlan", PlanConditions},
		"PlanMessageLength": {"bytes of the message of a ScalePlan", PlanMessageLength},
	}
}

func TestThePageOfLimitsHasEveryMaximum(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits.md"))
	expect.NoError(t, err)
	for name, each := range documented() {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(each.row) + `[^|]*\| ([0-9,]+) \|`).FindSubmatch(page)
		if row == nil || strings.ReplaceAll(string(row[1]), ",", "") != strconv.Itoa(each.value) {
			t.Errorf("docs/limits.md has no row of %q with the maximum %d, which is %s", each.row, each.value, name)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "limits.go", nil, 0)
	expect.NoError(t, err)
	var declared []string
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, isValue := node.(*ast.ValueSpec); isValue {
			declared = append(declared, spec.Names[0].Name)
		}
		return true
	})
	if slices.Sort(declared); !slices.Equal(declared, slices.Sorted(maps.Keys(documented()))) {
		t.Errorf("the constants are %v, and those that are documented %v", declared, slices.Sorted(maps.Keys(documented())))
	}
}
