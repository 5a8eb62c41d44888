// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview_test

import (
	"encoding/json"
	"flag"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview/jobviewtest"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/top"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// detail returns the page of a job in the browser.
func detail(o *jobview.Observed) *api.JobDetail {
	return pages.Detail(&pages.Observed{Observed: *o})
}

func TestEachViewOfAJobIsDrawnAs(t *testing.T) {
	t.Parallel()
	for name, o := range jobviewtest.Read(t, "testdata") {
		page, err := json.MarshalIndent(detail(o), "", "  ")
		expect.NoError(t, err)
		for view, got := range map[string]string{
			"describe": jobs.Describe(o), "list": strings.Join(jobs.Row(o.Job, o.Now), "  ") + "\n", "top": top.Text(o), "page": string(page) + "\n",
		} {
			expect.Golden(t, filepath.Join("testdata", name+"."+view+".golden"), got, *update)
		}
	}
}

// TestAllViewsOfAJobDesireTheSame reads the desired pods of each task from what each view draws. A number that only the
// coordinator knows is ?.
func TestAllViewsOfAJobDesireTheSame(t *testing.T) {
	t.Parallel()
	for name, o := range jobviewtest.Read(t, "testdata") {
		page := map[string]string{}
		for _, role := range detail(o).Job.Roles {
			page[role.Role] = "?"
			if role.Wanted != nil {
				page[role.Role] = strconv.Itoa(*role.Wanted)
			}
		}
		described := map[string]string{}
		_, tasks, _ := strings.Cut(jobs.Describe(o), "\nTasks:\n")
		tasks, _, _ = strings.Cut(tasks, "\n\n")
		for _, found := range regexp.MustCompile(`(?m)^  ([a-z]+) .*? (\d+|unknown) `).FindAllStringSubmatch(tasks, -1) {
			described[found[1]] = strings.Replace(found[2], "unknown", "?", 1)
		}
		topped := map[string]string{}
		line := regexp.MustCompile(`(?m)^Tasks: .*`).FindString(top.Text(o))
		for _, found := range regexp.MustCompile(`([a-z]+) \d+/(\d+|\?)`).FindAllStringSubmatch(line, -1) {
			topped[found[1]] = found[2]
		}
		if len(page) == 0 || !maps.Equal(page, described) || !maps.Equal(page, topped) {
			t.Errorf("%s: the page says %v, describe %v, top %v", name, page, described, topped)
		}
	}
}

// TestAllViewsOfAJobShowTheSameTroubles reads which conditions each view shows as trouble.
func TestAllViewsOfAJobShowTheSameTroubles(t *testing.T) {
	t.Parallel()
	seen := 0
	for name, o := range jobviewtest.Read(t, "testdata") {
		var page, topped []string
		for _, condition := range detail(o).Conditions {
			if condition.Trouble {
				page = append(page, condition.Type)
			}
		}
		for _, found := range regexp.MustCompile(`(?m)^Condition: +([A-Za-z]+) `).FindAllStringSubmatch(top.Text(o), -1) {
			if found[1] != "LastFailure" {
				topped = append(topped, found[1])
			}
		}
		if seen += len(page); !slices.Equal(page, topped) {
			t.Errorf("%s: the page says %v, top %v", name, page, topped)
		}
	}
	if seen == 0 {
		t.Error("no fixture has a trouble")
	}
}
