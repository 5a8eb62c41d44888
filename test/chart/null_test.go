// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Users of Helm set a key to null to drop its default.
func TestNullDropsADefaultOrIsRefusedByItsPath(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(chart(), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	// Templates read a value only while what it belongs to is enabled.
	base := append(everything(), "configuration.common.secureMetrics=true", "configuration.operator.metricsNamespaces=5")
	helm := program(t, "HELM")
	want, err := run(t, helm, renderArgs("di-system", base)...)
	if err != nil {
		t.Fatal(err)
	}
	for path, value := range paths("", values) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, helm, renderArgs("di-system", append(slices.Clone(base), path+"=null"))...)
			switch {
			case err != nil:
				checkRefusal(t, err, path)
			case strings.Contains(got, "nil>") || strings.Contains(got, "%!"):
				t.Error("a null is rendered")
			case isEmpty(value) && !isSet(base, path):
				if diff := cmp.Diff(decode(t, want), decode(t, got)); diff != "" {
					t.Errorf("null is not the same as empty:\n%s", diff)
				}
			}
		})
	}
}

// A null drops all of a section that is off by default, and limits that need not be.
func TestNullDropsLimitsVariablesAndMonitoring(t *testing.T) {
	t.Parallel()
	for _, component := range deployed() {
		objects := render(t, "di-system", component+".resources=null", component+".env=null", "monitoring=null")
		container := podOf(t, objects, component).Containers[0]
		if len(container.Resources.Limits)+len(container.Resources.Requests) > 0 {
			t.Errorf("%s has resources %v", component, container.Resources)
		}
		for _, variable := range container.Env {
			if variable.Name == "GOMEMLIMIT" {
				t.Errorf("%s has a memory limit of %s", component, variable.Value)
			}
		}
	}
}

// paths returns all keys of values by their paths.
func paths(prefix string, values map[string]any) map[string]any {
	found := map[string]any{}
	for key, value := range values {
		found[prefix+key] = value
		if section, isSection := value.(map[string]any); isSection {
			for path, inner := range paths(prefix+key+".", section) {
				found[path] = inner
			}
		}
	}
	return found
}

// checkRefusal checks that the schema refuses a path, and no template fails.
func checkRefusal(t *testing.T, err error, path string) {
	t.Helper()
	section, key := filepath.Split(strings.ReplaceAll(path, ".", "/"))
	at := strings.TrimSuffix("/"+section, "/")
	for _, want := range []string{"at '" + at + "'", "'" + key + "'"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// isSet reports whether one of the values sets the path or what is below it.
func isSet(values []string, path string) bool {
	return slices.ContainsFunc(values, func(value string) bool {
		rest, isBelow := strings.CutPrefix(value, path)
		return isBelow && strings.ContainsAny(rest[:1], ".[=")
	})
}
