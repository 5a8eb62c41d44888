// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// WriteChart writes a chart of the release with the given objects into an empty folder. The chart of
// v1.1 has the objects of its manifest, except the namespace and the definition.
func (r Release) WriteChart(folder string, objects []*unstructured.Unstructured) error {
	templates := filepath.Join(folder, "templates")
	if err := os.Mkdir(templates, 0o700); err != nil {
		return fmt.Errorf("making a chart of %s: %w", r.Name, err)
	}
	files := map[string][]byte{
		filepath.Join(folder, "Chart.yaml"): []byte("apiVersion: v2\nname: di-orchestrator\nversion: " + strings.TrimPrefix(r.Name, "v") + "\n"),
	}
	for i, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		files[filepath.Join(templates, fmt.Sprintf("%02d.yaml", i))] = content
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return fmt.Errorf("making a chart of %s: %w", r.Name, err)
		}
	}
	return nil
}
