// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"opendilab.org/di-orchestrator/internal/testkit"
)

// TestTheGuideToSecurityHasEveryRight compares the tables with the roles, right
// by right, in both directions.
func TestTheGuideToSecurityHasEveryRight(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	for program, folder := range map[string]string{"the operator": "operator", "the webhooks": "webhook", "the operator, for a takeover": "takeover", "di-server": "server"} {
		told, granted := toldRights(string(page), program), grantedRights(t, folder)
		if len(told) == 0 {
			t.Errorf("the page has no table of the rights of %s", program)
		}
		for _, right := range granted {
			if !slices.Contains(told, right) {
				t.Errorf("%s: the page lacks %s", program, right)
			}
		}
		for _, right := range told {
			if !slices.Contains(granted, right) {
				t.Errorf("%s: the page has, and the roles have not, %s", program, right)
			}
		}
	}
}

// right is one verb on one resource, by all that tells it from others.
func right(where, resource, name, verb string) string {
	return strings.Join([]string{verb, resource, name, "in", where}, " ")
}

func toldRights(page, program string) []string {
	_, after, _ := strings.Cut(page, "| "+program+": what | verbs | where | why |\n")
	table, _, _ := strings.Cut(after, "\n\n")
	row := regexp.MustCompile(`(?m)^\| ([^(|]*)(?:\(([^)|]*)\) )?\| ([a-z, ]+) \| (cluster|own) \|`)
	code := regexp.MustCompile("`([^`]+)`")
	var found []string
	for _, cells := range row.FindAllStringSubmatch(table, -1) {
		// The only resource of two groups is told with the one that is not the first.
		what, _, _ := strings.Cut(cells[1], " of ")
		names := code.FindAllStringSubmatch(cells[2], -1)
		if len(names) == 0 {
			names = [][]string{{"", ""}}
		}
		for _, resource := range code.FindAllStringSubmatch(what, -1) {
			for _, name := range names {
				for verb := range strings.SplitSeq(cells[3], ", ") {
					found = append(found, right(cells[4], resource[1], name[1], verb))
				}
			}
		}
	}
	return found
}

// grantedRights are those of the generated roles of a program.
func grantedRights(t *testing.T, folder string) []string {
	t.Helper()
	manifests, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "rbac", folder, "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		var role rbacv1.Role
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		where := "own"
		if role.Kind == "ClusterRole" {
			where = "cluster"
		}
		for i := range role.Rules {
			found = append(found, rightsOf(where, &role.Rules[i])...)
		}
	}
}

func rightsOf(where string, rule *rbacv1.PolicyRule) []string {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var found []string
	for _, resource := range rule.Resources {
		for _, name := range names {
			for _, verb := range rule.Verbs {
				found = append(found, right(where, resource, name, verb))
			}
		}
	}
	return found
}
