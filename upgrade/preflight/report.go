// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight reports what an installation would meet in a cluster before anything is
// changed: the installed release, the data of objects that would be lost, and the problems that
// prevent the installation. It applies the conversion and the operator's rules to every stored
// object.
//
// Evaluate is pure and takes a World. Inspect, which fills a World, only reads.
package preflight

import "opendilab.org/di-orchestrator/upgrade/crds"

// Severity is the consequence of a finding for an installation.
type Severity string

const (
	// Stop prevents an installation.
	Stop Severity = "Stop"
	// Warning needs attention but does not prevent an installation.
	Warning Severity = "Warning"
	// Note is information.
	Note Severity = "Note"
)

// Finding is an observation about one object, or about the cluster.
type Finding struct {
	Severity Severity `json:"severity"`
	// Object is the subject, as kind namespace/name. It is empty for the cluster.
	Object string `json:"object,omitempty"`
	// Message describes the observation, and Do advises what to do about it.
	Message string `json:"message"`
	Do      string `json:"do,omitempty"`
}

// Count is the number of objects of a kind.
type Count struct {
	Kind string `json:"kind"`
	// Version is the version in which they were read.
	Version string `json:"version"`
	Objects int    `json:"objects"`
}

// Deployment is a Deployment of an earlier release.
type Deployment struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Image     string `json:"image"`
	Replicas  int32  `json:"replicas"`
	// Operator means that it acts on jobs.
	Operator bool `json:"operator"`
}

// Definition describes a CustomResourceDefinition.
type Definition struct {
	Name     string      `json:"name"`
	Origin   crds.Origin `json:"origin"`
	Versions []string    `json:"versions"`
	// Storage is the storage version, and Stored are the versions in which some objects may be
	// stored.
	Storage string   `json:"storage"`
	Stored  []string `json:"stored"`
}

// Report is the result of the preflight.
type Report struct {
	// Server is the version of the API server.
	Server string `json:"server"`
	// Namespace is where DI Orchestrator is, or will be installed.
	Namespace string `json:"namespace"`
	// Release is the installed release: none, this program, or an earlier release.
	Release     crds.Origin  `json:"release"`
	Definitions []Definition `json:"definitions,omitempty"`
	Deployments []Deployment `json:"deployments,omitempty"`
	Objects     []Count      `json:"objects,omitempty"`
	Findings    []Finding    `json:"findings,omitempty"`
	// Steps lists what an installation will do, in this order.
	Steps []string `json:"steps,omitempty"`
	// Fine means that nothing prevents an installation.
	Fine bool `json:"fine"`
}

// Count returns how many findings have a severity.
func (r *Report) Count(severity Severity) int {
	count := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == severity {
			count++
		}
	}
	return count
}
