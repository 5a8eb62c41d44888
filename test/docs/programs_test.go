// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit"
)

func TestTheGuideToProgramsHasEveryVariableAndPort(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "programs.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	variables := constants(t, "internal/names/environment.go", "Env")
	if len(variables) < 10 {
		t.Errorf("%d variables were found: are the constants read at all?", len(variables))
	}
	// This one is for programs to be told by their template.
	variables = slices.DeleteFunc(variables, func(name string) bool { return name == names.EnvServerAPIVersion })
	ports := []int32{names.DefaultWorkerPort, names.DefaultMasterPort}
	for _, role := range []names.ReplicaType{
		names.ReplicaTypeCoordinator, names.ReplicaTypeCollector, names.ReplicaTypeLearner, names.ReplicaTypeAggregator, names.ReplicaTypeDDPLearner,
	} {
		variables = append(variables, names.PortVariable(role))
		ports = append(ports, names.DefaultPort(role))
	}
	for _, name := range append(variables, names.TokenFile, names.Container, names.Port, names.MasterPort) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/programs.md lacks %s", name)
		}
	}
	for _, port := range ports {
		if !strings.Contains(page, " "+strconv.Itoa(int(port))) {
			t.Errorf("docs/programs.md lacks port %d", port)
		}
	}
}

// constants returns the values of a file's constants whose names begin so.
func constants(t *testing.T, path string, prefixes ...string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(testkit.Root(), path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue || len(spec.Values) == 0 ||
			!slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(spec.Names[0].Name, prefix) }) {
			return true
		}
		if literal, isLiteral := spec.Values[0].(*ast.BasicLit); isLiteral {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, value)
		}
		return true
	})
	return found
}
