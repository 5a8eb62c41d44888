// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestEveryExampleInYAMLIsYAML(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for _, block := range blocksOf(t, page) {
			if block.Language != "yaml" {
				continue
			}
			checked++
			if err := decodes([]byte(block.Text)); err != nil {
				t.Errorf("%s:%d: %v", page, block.Line, err)
			}
		}
	}
	if checked < 20 {
		t.Errorf("%d examples were found: are they read at all?", checked)
	}
}

// TestTheChartHasTheValuesThatGitOpsToolsSet renders the chart with the values of each manifest.
func TestTheChartHasTheValuesThatGitOpsToolsSet(t *testing.T) {
	c := newChecker(t)
	checked := 0
	for _, block := range blocksOf(t, "docs/gitops.md") {
		if block.Language != "yaml" {
			continue
		}
		objects, err := decode([]byte(block.Text))
		if err != nil {
			t.Fatalf("docs/gitops.md:%d: %v", block.Line, err)
		}
		for _, object := range objects {
			for _, path := range [][]string{{"spec", "values"}, {"spec", "source", "helm", "valuesObject"}} {
				values, isSet, err := unstructured.NestedMap(object, path...)
				if err != nil {
					t.Fatalf("docs/gitops.md:%d: %v", block.Line, err)
				}
				if !isSet {
					continue
				}
				checked++
				if err := c.renders(values); err != nil {
					t.Errorf("docs/gitops.md:%d: %v", block.Line, err)
				}
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d manifests with values were found: are they read at all?", checked)
	}
	if err := c.renders(map[string]any{"servr": map[string]any{}}); err == nil {
		t.Error("a value that the chart does not have is not found")
	}
}

func (c *checker) renders(values map[string]any) error {
	c.t.Helper()
	helm := os.Getenv("HELM")
	if helm == "" {
		return errors.New("HELM is not set: run the tests by make test, or set it to the program")
	}
	raw, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	file := filepath.Join(c.t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	return c.run(helm, "template", "x", "charts/di-orchestrator", "--values", file)
}
