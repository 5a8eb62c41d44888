// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	crdFolder = "config/crd/bases"
	// podModule is the folder of the Go module that pins Kubernetes, whose module has the OpenAPI
	// documents of its API.
	podModule = "hack/cluster/binaries/kubernetes"
	// podDocument is the path of the core group's document in the module of Kubernetes.
	podDocument = "api/openapi-spec/v3/api__v1_openapi.json"

	componentsRef  = "#/components/schemas/"
	definitionsRef = "#/definitions/"
	objectMeta     = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	podTemplate    = "io.k8s.api.core.v1.PodTemplateSpec"
	podVolume      = "io.k8s.api.core.v1.Volume"
)

// node is a JSON object of a schema.
type node = map[string]any

// writeSchemas writes a JSON schema of each version of each kind, for editors and kubeconform. In
// the CRDs pod templates have no schema; here they have that of Kubernetes. As kubeconform -strict
// does, the schemas refuse unknown fields.
func (r *release) writeSchemas(ctx context.Context) error {
	pods, err := readPodTypes(ctx, r.root)
	if err != nil {
		return fmt.Errorf("schema of pods: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(r.root, crdFolder, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		schemas, err := schemasOf(content, pods)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for name, schema := range schemas {
			if err := os.WriteFile(r.artifact(name), schema, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPodTypes reads the types of the core group, by name.
func readPodTypes(ctx context.Context, root string) (map[string]node, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	cmd.Dir = filepath.Join(root, podModule)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	folder, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", cmd, podModule, err)
	}
	content, err := os.ReadFile(filepath.Join(string(bytes.TrimSpace(folder)), podDocument))
	if err != nil {
		return nil, err
	}
	var document struct {
		Components struct {
			Schemas map[string]node `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", podDocument, err)
	}
	return document.Components.Schemas, nil
}

// schemasOf returns the schemas of a CRD's versions by file name, such as
// diengine.opendilab.org_dijob_v2alpha1.json.
func schemasOf(crd []byte, pods map[string]node) (map[string][]byte, error) {
	var definition struct {
		Spec struct {
			Group    string
			Names    struct{ Kind, Singular string }
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema node `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(crd, &definition); err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, version := range definition.Spec.Versions {
		c := schemaConverter{pods: pods, definitions: node{}}
		root := c.object(version.Schema.OpenAPIV3Schema, "")
		properties, _ := root["properties"].(node)
		if properties == nil {
			return nil, fmt.Errorf("version %s has no properties", version.Name)
		}
		properties["apiVersion"] = node{"const": definition.Spec.Group + "/" + version.Name}
		properties["kind"] = node{"const": definition.Spec.Names.Kind}
		properties["metadata"] = c.podType(objectMeta)
		root["required"] = []string{"apiVersion", "kind", "metadata"}
		root["$schema"] = "http://json-schema.org/draft-07/schema#"
		root["definitions"] = c.definitions
		content, err := json.Marshal(root)
		if err != nil {
			return nil, err
		}
		name := strings.Join([]string{definition.Spec.Group, definition.Spec.Names.Singular, version.Name}, "_") + ".json"
		all[name] = append(content, '\n')
	}
	return all, nil
}

// schemaConverter converts schemas of OpenAPI v3 to JSON schemas, and collects the types of pods
// that they refer to.
type schemaConverter struct {
	pods        map[string]node
	definitions node
}

// podType returns a reference to a type of the core group and defines it.
func (c schemaConverter) podType(name string) node {
	if _, defined := c.definitions[name]; !defined {
		c.definitions[name] = node{} // A type may refer to itself.
		c.definitions[name] = c.object(c.pods[name], "")
	}
	return node{"$ref": definitionsRef + name}
}

// object converts the schema of a field with that name.
func (c schemaConverter) object(schema node, name string) node {
	if open, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool); open && name == "template" {
		return c.withDescription(c.podType(podTemplate), schema)
	}
	if either, _ := schema["x-kubernetes-int-or-string"].(bool); either {
		return c.withDescription(node{"anyOf": []node{{"type": "integer"}, {"type": "string"}}}, schema)
	}
	converted := node{}
	for key, value := range schema {
		if !strings.HasPrefix(key, "x-kubernetes-") && key != "nullable" && key != "default" {
			converted[key] = c.value(key, name, value)
		}
	}
	if ref, ok := schema["$ref"].(string); ok {
		return c.podType(strings.TrimPrefix(ref, componentsRef))
	}
	if kind, ok := schema["type"].(string); ok && schema["nullable"] == true {
		converted["type"] = []string{kind, "null"}
	}
	_, hasProperties := schema["properties"]
	_, hasOthers := schema["additionalProperties"]
	if hasProperties && !hasOthers && schema["x-kubernetes-preserve-unknown-fields"] != true {
		converted["additionalProperties"] = false
	}
	return converted
}

// value converts the value of one key of the schema of a field with that name.
func (c schemaConverter) value(key, name string, value any) any {
	switch key {
	case "properties":
		fields, _ := value.(node)
		converted := node{}
		for field, schema := range fields {
			converted[field] = c.child(schema, field)
		}
		return converted
	case "items":
		if name == "volumes" && c.opaque(value) {
			return c.podType(podVolume)
		}
		return c.child(value, "")
	case "additionalProperties", "not":
		return c.child(value, "")
	case "allOf", "anyOf", "oneOf":
		if schemas, ok := value.([]any); ok {
			converted := slices.Clone(schemas)
			for i := range converted {
				converted[i] = c.child(converted[i], name)
			}
			return converted
		}
	}
	return value
}

func (c schemaConverter) child(schema any, name string) any {
	if object, ok := schema.(node); ok {
		return c.object(object, name)
	}
	return schema
}

// opaque reports whether a CRD's schema accepts any object.
func (schemaConverter) opaque(schema any) bool {
	object, ok := schema.(node)
	return ok && object["x-kubernetes-preserve-unknown-fields"] == true
}

// withDescription adds the description of the field. Next to $ref, draft 7 ignores all other keys.
func (schemaConverter) withDescription(converted, schema node) node {
	if description, ok := schema["description"]; ok {
		return node{"allOf": []node{converted}, "description": description}
	}
	return converted
}
