// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importers turns manifests of other operators, and of generations of
// DI Orchestrator that are no longer served, into DIJobs and AggregatorConfigs.
//
// An importer takes a manifest apart: what it carries over it takes out of the
// manifest, and what is left at the end is reported as not carried. So nothing
// of a manifest is lost without a word.
//
// The package is pure: JSON in, JSON and a report out. It must not validate,
// read a cluster, or guess what a user may have meant.
package importers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Result is what became of a manifest.
type Result struct {
	// Object is the imported object, as JSON: v2alpha1, or v1alpha1 where the
	// manifest has that version's shape.
	Object []byte
	// Moves says from where in the manifest parts of the object came, where
	// that is another path. A longer To goes before a shorter one.
	Moves []Move
	// Lost is what of the manifest could not be carried over.
	Lost []Finding
	// Notes is what a user ought to know beside that, such as a name that was
	// changed or is to be changed.
	Notes []Finding
}

// Move says that the part of an object at To is the part of the manifest at From.
type Move struct {
	From, To Path
}

// Finding says something of a place in a manifest.
type Finding struct {
	// Path is the place in the manifest.
	Path Path
	// Value is what the manifest says there, nil where nothing is to be shown.
	Value any
	// Why says what is with it.
	Why string
	// Do says what the user may do about it, "" for nothing.
	Do string
}

// header is what tells one kind of manifest from another.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Template json.RawMessage `json:"template"`
		Tasks    json.RawMessage `json:"tasks"`
	} `json:"spec"`
}

func (h *header) group() string {
	group, _, _ := strings.Cut(h.APIVersion, "/")
	return group
}

// importerOf returns the function that imports manifests such as this one, nil
// if there is none.
func importerOf(raw []byte) func(*manifest) any {
	var head header
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil
	}
	switch {
	case head.APIVersion == kubeflowVersion && head.Kind == "TFJob":
		return importTFJob
	case head.APIVersion == kubeflowVersion && head.Kind == "PyTorchJob":
		return importPyTorchJob
	case isAncestor(&head):
		return importAncestor
	case head.APIVersion == v2alpha1.GroupVersion.String() && head.Kind == "DIJob" &&
		len(head.Spec.Template) > 0 && len(head.Spec.Tasks) == 0:
		return importTemplateJob
	}
	return nil
}

// Recognizes reports whether the manifest, which is JSON, is one that Import
// imports: a TFJob, a PyTorchJob, a NerveXJob or its AggregatorConfig, or a DIJob of v1.0.0,
// which calls its version v2alpha1 and has a template in place of tasks.
func Recognizes(raw []byte) bool {
	return importerOf(raw) != nil
}

// Import turns a manifest that Recognizes knows into an object of this
// project's group. It fails where the manifest holds a value of a wrong type,
// with its path.
func Import(raw []byte) (*Result, error) {
	importer := importerOf(raw)
	if importer == nil {
		return nil, errors.New("the object is none of those that can be imported: TFJob, PyTorchJob, NerveXJob, its AggregatorConfig, DIJob of v1.0.0")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	m := &manifest{}
	if err := decoder.Decode(&m.rest); err != nil {
		return nil, fmt.Errorf("the object is not a JSON object: %w", err)
	}
	object := importer(m)
	if m.err != nil {
		return nil, m.err
	}
	if m.result.Object = m.encode(object); m.err != nil {
		return nil, m.err
	}
	m.reportRest()
	return &m.result, nil
}

// job is a DIJob of v2alpha1 with metadata as the manifest has it.
type job struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Metadata   any                `json:"metadata,omitempty"`
	Spec       v2alpha1.DIJobSpec `json:"spec"`
}

func newJob(metadata any, spec v2alpha1.DIJobSpec) *job {
	if object, ok := metadata.(map[string]any); ok && len(object) == 0 {
		metadata = nil
	}
	return &job{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Metadata: metadata, Spec: spec}
}

// legacyVersion is the apiVersion of what has v1alpha1's shape.
func legacyVersion() string { return v1alpha1.GroupVersion.String() }

// encode writes JSON without escaping what only HTML needs escaped.
func (m *manifest) encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		m.failf("encoding the imported object: %w", err)
	}
	return bytes.TrimSpace(out.Bytes())
}
