// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight says what an installation would meet in a cluster, before
// anything is changed: which release is there, what of its objects would not
// survive, and what is in the way. It takes every stored object through the
// conversion and the rules that the operator will apply.
//
// Evaluate is pure and takes a World; Inspect, which fills one, only reads.
package preflight

import "opendilab.org/di-orchestrator/internal/upgrade/crds"

// Severity says what a finding means for an installation.
type Severity string

const (
	// Stop prevents an installation.
	Stop Severity = "Stop"
	// Warning needs attention, and stops nothing.
	Warning Severity = "Warning"
	// Note is information.
	Note Severity = "Note"
)

// Finding is what was found about one object, or about the cluster.
type Finding struct {
	Severity Severity `json:"severity"`
	// Object is what it is about, as kind namespace/name; the cluster where it is
	// empty.
	Object string `json:"object,omitempty"`
	// Message says what was found, Do what to do about it.
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

// Count is how many objects of a kind there are.
type Count struct {
	Kind string `json:"kind"`
	// Version is the one that they were read in.
	Version string `json:"version"`
	Objects int    `json:"objects"`
}

// Deployment is one of an earlier release.
type Deployment struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Image     string `json:"image"`
	Replicas  int32  `json:"replicas"`
	// Operator says that it acts on jobs.
	Operator bool `json:"operator"`
}

// Definition is what is known of a CustomResourceDefinition.
type Definition struct {
	Name     string      `json:"name"`
	Origin   crds.Origin `json:"origin"`
	Versions []string    `json:"versions"`
	// Storage is the version that objects are stored in from now on, Stored those
	// that some may be stored in.
	Storage string   `json:"storage"`
	Stored  []string `json:"stored"`
}

// Report is what was found.
type Report struct {
	// Server is the version of the API server.
	Server string `json:"server"`
	// Namespace is where DI Orchestrator is, or will be installed.
	Namespace string `json:"namespace"`
	// Release is whose installation was found: none, this program, or an earlier
	// release.
	Release     crds.Origin  `json:"release"`
	Definitions []Definition `json:"definitions,omitempty"`
	Deployments []Deployment `json:"deployments,omitempty"`
	Objects     []Count      `json:"objects,omitempty"`
	Findings    []Finding    `json:"findings,omitempty"`
	// Steps are what an installation will do, in this order.
	Steps []string `json:"steps,omitempty"`
	// Fine says that nothing stops it.
	Fine bool `json:"fine"`
}

// Count returns how many findings there are of a severity.
func (r *Report) Count(severity Severity) int {
	count := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == severity {
			count++
		}
	}
	return count
}
