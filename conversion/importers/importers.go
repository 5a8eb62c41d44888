// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package importers converts manifests of other operators, and of earlier generations of DI
// Orchestrator that are no longer served, to DIJobs and AggregatorConfigs.
//
// An importer removes from the manifest each value that it imports. The remaining values are
// reported as lost, so that nothing is dropped silently.
//
// The package is pure: it takes JSON and returns JSON and a report. It must not validate, read a
// cluster, or guess what a user meant.
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

// Result is the result of importing a manifest.
type Result struct {
	// Object is the imported object as JSON. It has version v2alpha1, or v1alpha1 if the manifest
	// has the structure of that version.
	Object []byte
	// Moves maps parts of the object to the manifest where their paths differ. A longer To precedes
	// a shorter one.
	Moves []Move
	// Lost lists the values of the manifest that could not be imported.
	Lost []Finding
	// Notes lists what a user should know besides, such as a name that was changed or must be
	// changed.
	Notes []Finding
}

// Move maps the part of an object at To to the part of the manifest at From.
type Move struct {
	From, To Path
}

// Finding describes a value of a manifest.
type Finding struct {
	// Path is the path of the value in the manifest.
	Path Path
	// Value is the value in the manifest, or nil if it is not shown.
	Value any
	// Why describes the problem or the change.
	Why string
	// Do advises the user what to do about it; "" means nothing.
	Do string
}

// header contains the fields that distinguish the kinds of manifests.
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

// importerOf returns the function that imports manifests of this kind, and nil if there is none.
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
	case (head.APIVersion == kubeflowVersion || head.APIVersion == mpiOperatorVersion) && head.Kind == "MPIJob":
		return importMPIJob
	case head.APIVersion == trainerVersion && head.Kind == "TrainJob":
		return importTrainJob
	case isAncestor(&head):
		return importAncestor
	case head.APIVersion == v2alpha1.GroupVersion.String() && head.Kind == "DIJob" &&
		len(head.Spec.Template) > 0 && len(head.Spec.Tasks) == 0:
		return importTemplateJob
	}
	return nil
}

// Recognizes reports whether Import can import the manifest, which is JSON. It can import a TFJob,
// a PyTorchJob, an MPIJob, a TrainJob, a NerveXJob, the AggregatorConfig of NerveX, and a DIJob of v1.0.0. The latter
// calls its version v2alpha1 and has a template in place of tasks.
func Recognizes(raw []byte) bool {
	return importerOf(raw) != nil
}

// Import converts a manifest that Recognizes accepts to an object of this project's group. It fails
// with the path if a value of the manifest has a wrong type.
func Import(raw []byte) (*Result, error) {
	importer := importerOf(raw)
	if importer == nil {
		return nil, errors.New("the object is none of those that can be imported: TFJob, PyTorchJob, MPIJob, TrainJob, NerveXJob, its AggregatorConfig, DIJob of v1.0.0")
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

// job is a DIJob of v2alpha1 with the metadata of the manifest.
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

// legacyVersion returns the apiVersion of objects with the structure of v1alpha1.
func legacyVersion() string { return v1alpha1.GroupVersion.String() }

// encode returns JSON without the escapes that only HTML needs.
func (m *manifest) encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		m.failf("encoding the imported object: %w", err)
	}
	return bytes.TrimSpace(out.Bytes())
}
