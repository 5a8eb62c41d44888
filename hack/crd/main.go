// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crd adds to the generated CRDs what controller-gen does not support: the conversion of
// the kinds whose versions differ. `make manifests` runs it.
package main

import (
	"errors"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: crd FILE, the generated CRD to which the conversion is added")
	}
	generated, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	completed, err := addConversion(generated)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return os.WriteFile(args[0], completed, 0o644)
}

// addConversion returns the CRD with a conversion stanza. It exists from the first apply, without a
// CA bundle, so that requests fail while the webhook does not serve yet. Otherwise the API server
// would convert by changing only the version's name.
func addConversion(generated []byte) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(generated, &crd); err != nil {
		return nil, err
	}
	spec, ok := crd["spec"].(map[string]any)
	if !ok || crd["kind"] != "CustomResourceDefinition" {
		return nil, errors.New("not a CustomResourceDefinition with a spec")
	}
	spec["conversion"] = map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"clientConfig": map[string]any{
				"service": map[string]any{
					"namespace": "di-system",
					"name":      "di-orchestrator-webhook",
					"path":      "/convert",
					"port":      443,
				},
			},
			"conversionReviewVersions": []any{"v1"},
		},
	}
	completed, err := yaml.Marshal(crd)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), completed...), nil
}
