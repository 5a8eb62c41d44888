// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// validate checks each document of a manifest against the release's schemas. Documents of other
// groups have none and are accepted.
func validate(out string, manifest []byte) error {
	for document := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(document, &head); err != nil {
			return err
		}
		group, version, _ := strings.Cut(head.APIVersion, "/")
		if group != "diengine.opendilab.org" {
			continue
		}
		schema, err := jsonschema.NewCompiler().Compile(filepath.Join(out, fmt.Sprintf("%s_%s_%s.json", group, strings.ToLower(head.Kind), version)))
		if err != nil {
			return err
		}
		content, err := yaml.YAMLToJSON(document)
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
		if err != nil {
			return err
		}
		if err := schema.Validate(value); err != nil {
			return err
		}
	}
	return nil
}

// checkSchemas expects that the schemas accept every example and refuse what the CRD cannot: a
// misspelled field of a container.
func checkSchemas(t *testing.T, out string) {
	t.Helper()
	examples, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("found %d examples: %v", len(examples), err)
	}
	for _, path := range examples {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(out, content); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	const job = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: x}
spec:
  tasks:
  - type: learner
    template:
      spec:
        containers: [{name: di-container, image: x, %s: {limits: {nvidia.com/gpu: 1}}}]
`
	if err := validate(out, fmt.Appendf(nil, job, "resources")); err != nil {
		t.Errorf("a container with resources: %v", err)
	}
	if err := validate(out, fmt.Appendf(nil, job, "resource")); err == nil || !strings.Contains(err.Error(), "resource") {
		t.Errorf("a container with resource: got error %v, want one that names the field", err)
	}
}
