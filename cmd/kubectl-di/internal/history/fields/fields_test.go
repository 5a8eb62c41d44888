// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"encoding/json"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/fields"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAFieldIsChangedWhereItsPathLeads(t *testing.T) {
	t.Parallel()
	const manifest = `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"n":1,"list":[{"name":"x","text":"1"},{"name":"y"}],"args":["a","b"]}}`
	for text, want := range map[string]string{
		"spec.n=2":                       `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","b"],"list":[{"name":"x","text":"1"},{"name":"y"}],"n":2}}`,
		"metadata.labels[a.b/c]=2":       `{"metadata":{"labels":{"a.b/c":"2"}},"spec":{"args":["a","b"],"list":[{"name":"x","text":"1"},{"name":"y"}],"n":1}}`,
		"metadata=null":                  `{"spec":{"args":["a","b"],"list":[{"name":"x","text":"1"},{"name":"y"}],"n":1}}`,
		"spec.list[x].text=a=b":          `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","b"],"list":[{"name":"x","text":"a=b"},{"name":"y"}],"n":1}}`,
		"spec.list[x].text=":             `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","b"],"list":[{"name":"x","text":""},{"name":"y"}],"n":1}}`,
		"spec.list[x]=null":              `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","b"],"list":[{"name":"y"}],"n":1}}`,
		"spec.list[2].name=z":            `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","b"],"list":[{"name":"x","text":"1"},{"name":"y"},{"name":"z"}],"n":1}}`,
		"spec.args[1]=3":                 `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","3"],"list":[{"name":"x","text":"1"},{"name":"y"}],"n":1}}`,
		"spec.args=[c]":                  `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["c"],"list":[{"name":"x","text":"1"},{"name":"y"}],"n":1}}`,
		"spec.new.deep={limits: {a: 1}}": `{"metadata":{"labels":{"a.b/c":"1"}},"spec":{"args":["a","b"],"list":[{"name":"x","text":"1"},{"name":"y"}],"n":1,"new":{"deep":{"limits":{"a":1}}}}}`,
	} {
		change, err := fields.ParseChange(text)
		expect.NoError(t, err)
		var object map[string]any
		expect.NoError(t, utiljson.Unmarshal([]byte(manifest), &object))
		expect.NoError(t, change.Apply(object))
		got, err := json.Marshal(object)
		expect.NoError(t, err)
		expect.Equal(t, text, want, string(got))
	}
}

func TestAPathThatLeadsNowhereIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"spec.list[z].name=1":   `--set spec.list[z].name: spec.list has no entry "z": it has x, y`,
		"spec.list[3].name=1":   "--set spec.list[3].name: spec.list has 2 entries, and none is number 3",
		"spec.list[-1].name=1":  "--set spec.list[-1].name: spec.list has 2 entries, and none is number -1",
		"spec.list[x].name.a=1": `--set spec.list[x].name.a: spec.list.x.name is no object: it has no field "a"`,
		"spec.args[first]=1":    `--set spec.args[first]: spec.args has no entry "first": it has 2 entries, by number from 0`,
	} {
		change, err := fields.ParseChange(text)
		expect.NoError(t, err)
		var object map[string]any
		expect.NoError(t, utiljson.Unmarshal([]byte(`{"spec":{"list":[{"name":"x"},{"name":"y"}],"args":["a","b"]}}`), &object))
		if err := change.Apply(object); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, text := range []string{"", "=", "=1", "a", ".a=1", "a.=1", "a[=1", "a[]=1", "a[b]c=1", "a..b=1", "a={", "a=[1"} {
		if _, err := fields.ParseChange(text); err == nil {
			t.Errorf("%q is a change", text)
		}
	}
}

func TestEntriesOfListsAreComparedByName(t *testing.T) {
	t.Parallel()
	const a = `{"metadata":{"name":"a","uid":"1"},"spec":{"tasks":[{"type":"learner","n":1},{"type":"collector","n":1}],"args":["a"],"volumes":[{"name":"v","emptyDir":{}}],"ports":[{"p":1},{"p":2}]}}`
	const b = `{"metadata":{"name":"b","uid":"2"},"spec":{"tasks":[{"type":"evaluator","n":1},{"type":"learner","n":2},{"type":"collector","n":1}],"args":["a","b"],"ports":[{"p":1},{"p":3}]}}`
	expect.Equal(t, "differences", []fields.Difference{
		{Field: "spec.args", Values: []string{`["a"]`, `["a","b"]`}},
		{Field: "spec.ports[1].p", Values: []string{"2", "3"}},
		{Field: "spec.tasks[evaluator].n", Values: []string{"", "1"}},
		{Field: "spec.tasks[evaluator].type", Values: []string{"", `"evaluator"`}},
		{Field: "spec.tasks[learner].n", Values: []string{"1", "2"}},
		{Field: "spec.volumes[v].emptyDir", Values: []string{"{}", ""}},
		{Field: "spec.volumes[v].name", Values: []string{`"v"`, ""}},
	}, fields.Differences([]byte(a), []byte(b)))
	if same := fields.Differences([]byte(a), []byte(a)); len(same) > 0 {
		t.Errorf("a manifest differs from itself: %v", same)
	}
}
