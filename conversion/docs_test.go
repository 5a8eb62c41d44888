// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// documented is a row of a table of fields in docs/conversion.md.
type documented struct {
	v1, v2, carried string
}

// documentedFields returns the rows under a heading of docs/conversion.md. A row of extended fields names
// several, each of which v1alpha1 has at the same path below extended.
func documentedFields(t *testing.T, heading string) []documented {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "conversion.md"))
	expect.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/conversion.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []documented
	row := regexp.MustCompile("(?m)^\\| (?:`(.*?)`|-) \\| (?:`(.*?)`|-) \\| (shared|renamed|extended|derived) \\|")
	for _, cells := range row.FindAllStringSubmatch(section, -1) {
		rows = append(rows, documented{v1: cells[1], v2: cells[2], carried: cells[3]})
	}
	extended, field := regexp.MustCompile(`(?m)^\| extended \| (.*) \|$`), regexp.MustCompile("`([^`]+)`")
	for _, cells := range extended.FindAllStringSubmatch(section, -1) {
		for _, named := range field.FindAllStringSubmatch(cells[1], -1) {
			root, path, _ := strings.Cut(named[1], ".")
			rows = append(rows, documented{v1: root + ".extended." + path, v2: named[1], carried: "extended"})
		}
	}
	return rows
}

// checkNames compares the names in a column with the fields of a type.
func checkNames(t *testing.T, version string, root *apiField, names map[string]bool) {
	t.Helper()
	for _, leaf := range root.leaves() {
		if !names[leaf.path] {
			t.Errorf("docs/conversion.md lacks %s of %s", leaf.path, version)
		}
		delete(names, leaf.path)
	}
	for name := range names {
		if name != "" {
			t.Errorf("docs/conversion.md has %s of %s, which does not exist", name, version)
		}
	}
}

func TestTheTablesNameEveryField(t *testing.T) {
	t.Parallel()
	for heading, types := range map[string][2]*apiField{
		"Fields of a DIJob":             {fieldsOf[v1alpha1.DIJob](), fieldsOf[v2alpha1.DIJob]()},
		"Fields of an AggregatorConfig": {fieldsOf[v1alpha1.AggregatorConfig](), fieldsOf[v2alpha1.AggregatorConfig]()},
	} {
		ofV1, ofV2 := map[string]bool{}, map[string]bool{}
		for _, row := range documentedFields(t, heading) {
			ofV2[row.v2] = true
			if row.carried != "extended" {
				ofV1[row.v1] = true
			}
			if heading == "Fields of an AggregatorConfig" && (row.v1 != row.v2 || row.carried != "shared") {
				t.Errorf("%s and %s are not shared", row.v1, row.v2)
			}
		}
		checkNames(t, "v1alpha1", types[0], ofV1)
		checkNames(t, "v2alpha1", types[1], ofV2)
	}
}

// TestTheTableSaysHowAFieldIsCarried converts, for each row, a job that has little more than its
// field.
func TestTheTableSaysHowAFieldIsCarried(t *testing.T) {
	t.Parallel()
	samples := map[string]any{}
	for _, leaf := range fieldsOf[v2alpha1.DIJob]().leaves() {
		samples[leaf.path] = sample(leaf.kind)
	}
	for _, row := range documentedFields(t, "Fields of a DIJob") {
		switch row.carried {
		case "extended":
			checkExtended(t, row, samples[row.v2])
		case "derived":
			checkDerived(t, row, samples[row.v2])
		default:
			checkCarried(t, row, samples[row.v2])
		}
	}
}

// checkCarried checks that a field of v1alpha1 becomes one of v2alpha1 and is restored, with
// nothing in extended.
func checkCarried(t *testing.T, row documented, value any) {
	t.Helper()
	job := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "DIJob"}
	put(job, row.v1, value)
	hub := decode(t, mustConvert(t, job, v2alpha1.GroupVersion.String()))
	if got := lookUp(hub, row.v2); !reflect.DeepEqual(value, got) {
		t.Errorf("%s is %v in v1alpha1, %s is %v in v2alpha1", row.v1, value, row.v2, got)
	}
	back := decode(t, mustConvert(t, hub, v1alpha1.GroupVersion.String()))
	if !reflect.DeepEqual(job, back) {
		t.Errorf("%s: %v became %v", row.v1, job, back)
	}
	if row.carried == "shared" && row.v1 != row.v2 {
		t.Errorf("%s and %s are not shared, but renamed", row.v1, row.v2)
	}
}

// checkExtended checks that extended contains a field of v2alpha1.
func checkExtended(t *testing.T, row documented, value any) {
	t.Helper()
	job := emptyHub()
	put(job, row.v2, value)
	seen := decode(t, mustConvert(t, job, v1alpha1.GroupVersion.String()))
	if got := lookUp(seen, row.v1); !reflect.DeepEqual(value, got) {
		t.Errorf("%s is %v in v2alpha1, %s is %v in v1alpha1", row.v2, value, row.v1, got)
	}
}

// checkDerived checks a field of v2alpha1. While it has the value that v1alpha1 implies, v1alpha1
// does not contain it; otherwise extended does. The derived field of v1alpha1 is extended itself.
func checkDerived(t *testing.T, row documented, value any) {
	t.Helper()
	if row.v2 == "" {
		if !strings.HasSuffix(row.v1, ".extended") {
			t.Errorf("%s is not derived", row.v1)
		}
		return
	}
	job := emptyHub()
	put(job, "spec.tasks", []any{
		map[string]any{"type": "coordinator", "name": "coordinator", "replicas": json.Number("1")},
	})
	want := map[string]any{"coordinator": map[string]any{}}
	seen := decode(t, mustConvert(t, job, v1alpha1.GroupVersion.String()))
	if got := seen["spec"]; lookUp(job, row.v2) == nil || !reflect.DeepEqual(any(want), got) {
		t.Errorf("%s is not implied by v1alpha1: %v", row.v2, got)
	}
	put(job, row.v2, value)
	seen = decode(t, mustConvert(t, job, v1alpha1.GroupVersion.String()))
	kept := strings.Replace(row.v2, "spec.", "spec.extended.", 1)
	if got := lookUp(seen, kept); !reflect.DeepEqual(value, got) {
		t.Errorf("%s is %v in v2alpha1, %s is %v in v1alpha1", row.v2, value, kept, got)
	}
}

// emptyHub returns a job of v2alpha1 whose fields are all implied by v1alpha1.
func emptyHub() map[string]any {
	return map[string]any{
		"apiVersion": v2alpha1.GroupVersion.String(), "kind": "DIJob",
		"spec": map[string]any{"lifecycle": "CoordinatorLed", "backoffLimit": json.Number("0")},
	}
}

// sample returns a value of a leaf. A string is a name that both versions have for a phase and a
// policy.
func sample(kind reflect.Kind) any {
	switch kind {
	case reflect.String:
		return "Running"
	case reflect.Bool:
		return true
	case reflect.Struct:
		return map[string]any{"a": "b"}
	case reflect.Interface:
		return "2026-01-02T03:04:05Z"
	default:
		return json.Number("7")
	}
}

// step returns the first step of an apiField's path and the rest. A step is a name, [] for all
// items of a list, or {} for all values of a map.
func step(path string) (first, rest string) {
	path = strings.TrimPrefix(path, ".")
	if strings.HasPrefix(path, "[]") || strings.HasPrefix(path, "{}") {
		return path[:2], path[2:]
	}
	if end := strings.IndexAny(path, ".[{"); end >= 0 {
		return path[:end], path[end:]
	}
	return path, ""
}

// put sets the value at a path, in the first item of lists and under the key x of maps. Other
// values stay.
func put(parent map[string]any, path string, value any) {
	first, rest := step(path)
	parent[first] = withValue(parent[first], rest, value)
}

func withValue(at any, path string, value any) any {
	first, rest := step(path)
	switch first {
	case "":
		return value
	case "[]":
		if items, ok := at.([]any); ok {
			return []any{withValue(items[0], rest, value)}
		}
		return []any{withValue(nil, rest, value)}
	case "{}":
		first = "x"
	}
	object, ok := at.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	object[first] = withValue(object[first], rest, value)
	return object
}

// lookUp returns the value at a path, in the first item of lists and the only value of maps. It
// returns nil if there is none.
func lookUp(at any, path string) any {
	first, rest := step(path)
	switch at := at.(type) {
	case map[string]any:
		if first != "{}" {
			if first == "" {
				return at
			}
			return lookUp(at[first], rest)
		}
		for _, value := range at {
			return lookUp(value, rest)
		}
	case []any:
		if first == "[]" {
			return lookUp(at[0], rest)
		}
	}
	if first != "" {
		return nil
	}
	return at
}
