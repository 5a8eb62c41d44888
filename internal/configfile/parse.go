// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

// MaxBytes is the maximum size of the file.
const MaxBytes = 64 << 10

// Parse decodes a file. Fields that are absent have their defaults. The error names each field that is wrong.
func Parse(content []byte) (*v1alpha1.Configuration, error) {
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("the file has more than %d bytes", MaxBytes)
	}
	if err := checkOne(content); err != nil {
		return nil, err
	}
	encoded, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("the file is no YAML without repeated fields: %w", err)
	}
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(encoded, &tree); err != nil {
		return nil, fmt.Errorf("the file cannot be decoded: %w", err)
	}
	// A file of another kind has other fields: they say nothing.
	if err := checkKind(tree).ToAggregate(); err != nil {
		return nil, err
	}
	if err := describe().check(nil, tree).ToAggregate(); err != nil {
		return nil, err
	}
	found := v1alpha1.Defaults()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(encoded, found); err != nil {
		return nil, fmt.Errorf("the file cannot be decoded: %w", err)
	}
	allocator := &found.Operator.Allocator
	if allocator.Topology == nil {
		// A null is an absent field.
		allocator.Topology = v1alpha1.Defaults().Operator.Allocator.Topology
	}
	if err := append(checkTenants(allocator.Tenants), checkTopology(allocator.Topology)...).ToAggregate(); err != nil {
		return nil, err
	}
	return found, nil
}

// checkOne refuses a file of several documents: the others would be ignored.
func checkOne(content []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	count := 0
	for {
		document, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF) && count <= 1:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the file has %d documents: must have one", count)
		case err != nil:
			return fmt.Errorf("the file is no YAML: %w", err)
		}
		if len(bytes.TrimSpace(document)) > 0 {
			count++
		}
	}
}

func checkKind(tree any) field.ErrorList {
	given, _ := tree.(map[string]any)
	var found field.ErrorList
	for name, want := range map[string]string{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind} {
		if given[name] != want {
			found = append(found, field.Invalid(field.NewPath(name), given[name], "must be "+want))
		}
	}
	return found
}
