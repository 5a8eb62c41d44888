// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podschema reports the members of a pod template for which the API server has no field. It
// uses the schema that the API server publishes, whose pods may have fields that the Go types of
// this program do not have.
package podschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is the API server's schema of pod templates. It is immutable.
type Schema struct {
	template, volume *structuralschema.Structural
}

// The names of a template's types in the OpenAPI document.
const (
	components   = "#/components/schemas/"
	podTemplate  = components + "io.k8s.api.core.v1.PodTemplateSpec"
	volume       = components + "io.k8s.api.core.v1.Volume"
	preserveMark = "x-kubernetes-preserve-unknown-fields"
)

// Parse reads the OpenAPI v3 document of the core API group.
func Parse(document []byte) (*Schema, error) {
	var published struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &published); err != nil {
		return nil, fmt.Errorf("decoding the OpenAPI document: %w", err)
	}
	var broken error
	// Only the types of a pod are decoded, a fifth of the document.
	types := map[string]*spec.Schema{}
	typeOf := func(ref string) (*spec.Schema, bool) {
		if known, ok := types[ref]; ok {
			return known, true
		}
		raw, ok := published.Components.Schemas[strings.TrimPrefix(ref, components)]
		if !ok {
			return nil, false
		}
		decoded := &spec.Schema{}
		if err := json.Unmarshal(raw, decoded); err != nil {
			broken = errors.Join(broken, fmt.Errorf("decoding the type %s: %w", ref, err))
		}
		types[ref] = decoded
		return decoded, true
	}
	schema := &Schema{}
	for ref, into := range map[string]**structuralschema.Structural{podTemplate: &schema.template, volume: &schema.volume} {
		populated, err := resolver.PopulateRefs(typeOf, ref)
		if err := errors.Join(err, broken); err != nil {
			return nil, fmt.Errorf("reading %s: %w", ref, err)
		}
		*into = structural(populated)
	}
	return schema, nil
}

// structural returns the part of a schema that defines which members exist.
func structural(from *spec.Schema) *structuralschema.Structural {
	into := &structuralschema.Structural{}
	if len(from.Properties) > 0 {
		into.Properties = make(map[string]structuralschema.Structural, len(from.Properties))
		for name := range from.Properties {
			property := from.Properties[name]
			into.Properties[name] = *structural(&property)
		}
	}
	if from.Items != nil && from.Items.Schema != nil {
		into.Items = structural(from.Items.Schema)
	}
	if from.AdditionalProperties != nil && from.AdditionalProperties.Schema != nil {
		into.AdditionalProperties = &structuralschema.StructuralOrBool{Structural: structural(from.AdditionalProperties.Schema)}
	}
	preserved, _ := from.Extensions.GetBool(preserveMark)
	// An object without declared members accepts any, such as managed fields.
	free := from.Type.Contains("object") && len(from.Properties) == 0 && into.AdditionalProperties == nil
	into.XPreserveUnknownFields = preserved || free
	return into
}

// UnknownInTemplate returns the paths of the members of a pod template that are
// unknown to the API server, each below the given path.
func (s *Schema) UnknownInTemplate(raw []byte, at string) []string {
	return unknown(raw, s.template, at)
}

// UnknownInVolume does the same for a volume of a pod.
func (s *Schema) UnknownInVolume(raw []byte, at string) []string {
	return unknown(raw, s.volume, at)
}

func unknown(raw []byte, schema *structuralschema.Structural, at string) []string {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		// Invalid JSON has no members.
		return nil
	}
	paths := pruning.PruneWithOptions(value, schema, false, structuralschema.UnknownFieldPathOptions{
		TrackUnknownFieldPaths: true, ParentPath: []string{at},
	})
	return slices.Compact(paths)
}
