// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// group is a run: packages that are changed, and the tests that have to notice.
type group struct {
	// Name selects the group.
	Name string `json:"name"`
	// Change are the patterns of the packages to change.
	Change []string `json:"change"`
	// Tests have to notice. The default is the tests of the changed packages.
	Tests []tests `json:"tests"`
}

// tests are those of one package.
type tests struct {
	Package string   `json:"package"`
	Args    []string `json:"args"`
}

// readNet reads the groups, or the one with a name.
func readNet(path, name string) ([]group, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var groups []group
	if err := yaml.UnmarshalStrict(content, &groups); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if name == "" {
		return groups, nil
	}
	var known []string
	for i := range groups {
		known = append(known, groups[i].Name)
	}
	i := slices.Index(known, name)
	if i < 0 {
		return nil, fmt.Errorf("-group %s: want one of %s", name, strings.Join(known, ", "))
	}
	return groups[i : i+1], nil
}

// suites returns the tests that have to notice.
func (g *group) suites(sources []*source) []tests {
	if len(g.Tests) > 0 {
		return g.Tests
	}
	var found []tests
	for _, s := range sources {
		if s.hasTests() {
			found = append(found, tests{Package: s.ImportPath})
		}
	}
	return found
}
