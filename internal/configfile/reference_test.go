// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

const introduction = "# Configuration\n" + `
The operator, the webhooks and di-server read the file of flag ` + "`--config`" + ` when they start. The chart writes it from its value
` + "`configuration`" + ` to ConfigMap ` + "`di-orchestrator-configuration`" + `, and restarts the programs after a change:

    helm upgrade di-orchestrator charts/di-orchestrator --namespace di-system --reset-then-reuse-values --set configuration.operator.workers=16

Fractions need ` + "`--set-json`" + ` or a file of values. Without the chart, edit the ConfigMap, and restart the Deployments:

    apiVersion: config.diengine.opendilab.org/v1alpha1
    kind: Configuration
    operator: {workers: 16}

An unknown field or a wrong value is refused. So is a former flag or value of the chart that is a field now: the error names the field
([why](adr/0077-one-configuration-file.md)).

| field | default | meaning |
| --- | --- | --- |
`

// comments returns the comments of the fields of all structs of the API package.
func comments(t *testing.T) map[string]map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "apis", "config", "v1alpha1", "configuration_types.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	ast.Inspect(file, func(at ast.Node) bool {
		declared, isType := at.(*ast.TypeSpec)
		if !isType {
			return true
		}
		if of, isStruct := declared.Type.(*ast.StructType); isStruct {
			found[declared.Name.Name] = commentsOf(of)
		}
		return false
	})
	return found
}

func commentsOf(of *ast.StructType) map[string]string {
	found := map[string]string{}
	for _, field := range of.Fields.List {
		if len(field.Names) == 0 {
			continue
		}
		text := strings.Join(strings.Fields(field.Doc.Text()), " ")
		for _, prefix := range []string{field.Names[0].Name + " ", "is ", "are "} {
			text = strings.TrimPrefix(text, prefix)
		}
		found[field.Names[0].Name] = text
	}
	return found
}

// rows returns the rows of the fields below a path.
func rows(path string, at *node, defaults any, about map[string]map[string]string, structName string) string {
	values, _ := defaults.(map[string]any)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(at.fields)) {
		inner := at.fields[name]
		if inner.kind == object {
			text.WriteString(rows(path+name+".", inner, values[name], about, inner.goType))
			continue
		}
		byDefault, _ := json.Marshal(values[name])
		switch {
		case inner.kind == list && string(byDefault) == "null":
			byDefault = []byte("[]")
		case values == nil:
			byDefault = nil
		}
		fmt.Fprintf(&text, "| `%s%s` | `%s` | %s |\n", path, name, strings.Trim(string(byDefault), `"`), about[structName][inner.goName])
		if inner.kind == list && inner.item.kind == object {
			text.WriteString(rows(path+name+"[].", inner.item, nil, about, inner.item.goType))
		}
	}
	return strings.ReplaceAll(text.String(), "| `` |", "| |")
}

func TestTheReferenceListsEveryField(t *testing.T) {
	t.Parallel()
	encoded, err := json.Marshal(v1alpha1.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := json.Unmarshal(encoded, &defaults); err != nil {
		t.Fatal(err)
	}
	root := describe()
	delete(root.fields, "apiVersion")
	delete(root.fields, "kind")
	want := introduction + rows("", root, defaults, comments(t), "Configuration")
	if strings.Contains(want, "| |\n") || strings.Contains(want, "|  |\n") {
		t.Errorf("a field has no comment:\n%s", want)
	}
	path := filepath.Join("..", "..", "docs", "configuration.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("run this test with -update; (-file +fields):\n%s", diff)
	}
}
