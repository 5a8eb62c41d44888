// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheDocumentedWarningsAreThoseOfTheCodeAndTheCRDs(t *testing.T) {
	t.Parallel()
	documented := documentedWarnings(t)
	given := append(warningsOfTheCode(t), warningsOfTheCRDs(t)...)
	for _, pattern := range given {
		if !slices.ContainsFunc(documented, pattern.MatchString) {
			t.Errorf("docs/validation.md has no warning that matches %s", pattern)
		}
	}
	for _, warning := range documented {
		if !slices.ContainsFunc(given, func(pattern *regexp.Regexp) bool { return pattern.MatchString(warning) }) {
			t.Errorf("docs/validation.md has a warning that nothing gives: %s", warning)
		}
	}
}

// documentedWarnings returns the source of each documented warning, and its example.
func documentedWarnings(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "validation.md"))
	expect.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Warnings\n")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| .+ \\| (webhook|API server) \\| `(.+)` \\|$").FindAllStringSubmatch(section, -1) {
		documented = append(documented, row[1]+" "+row[2])
	}
	return documented
}

// warningsOfTheCode returns patterns of the warnings that the code constructs.
func warningsOfTheCode(t *testing.T) []*regexp.Regexp {
	t.Helper()
	var patterns []*regexp.Regexp
	for _, file := range []string{"webhook/validation/overrides.go", "webhook/validation/warnings.go", "webhook/warnings.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(testkit.Root(), file), nil, 0)
		expect.NoError(t, err)
		ast.Inspect(parsed, func(node ast.Node) bool {
			if call, isCall := node.(*ast.CallExpr); isCall {
				if pattern := warningOf(call); pattern != nil {
					patterns = append(patterns, pattern)
				}
			}
			return true
		})
	}
	return patterns
}

// warningOf returns a pattern of the warning that a call adds to its path, or formats in full.
func warningOf(call *ast.CallExpr) *regexp.Regexp {
	selector, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector {
		return nil
	}
	switch of, text := fmt.Sprint(selector.X), ""; {
	case of == "w" && selector.Sel.Name == "add":
		return regexp.MustCompile("^webhook spec[^ ]*: " + literals(call.Args[1]) + "$")
	case of == "fmt" && selector.Sel.Name == "Sprintf":
		if text = literals(call.Args[0]); text != "" {
			return regexp.MustCompile("^webhook " + text + "$")
		}
	}
	return nil
}

// warningsOfTheCRDs returns the API server's warnings about versions.
func warningsOfTheCRDs(t *testing.T) []*regexp.Regexp {
	t.Helper()
	var patterns []*regexp.Regexp
	for _, resource := range []string{"dijobs", "aggregatorconfigs"} {
		for _, version := range readCRD(t, resource).Spec.Versions {
			if warning := version.DeprecationWarning; warning != nil {
				patterns = append(patterns, regexp.MustCompile("^API server "+regexp.QuoteMeta(*warning)+"$"))
			}
		}
	}
	return patterns
}
