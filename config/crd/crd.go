// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions that this program was built
// with.
package crd

import _ "embed"

// DIJobs returns the CustomResourceDefinition of DIJobs, as YAML.
func DIJobs() []byte { return dijobs }

// AggregatorConfigs returns the CustomResourceDefinition of AggregatorConfigs, as YAML.
func AggregatorConfigs() []byte { return aggregatorConfigs }

// All returns the CustomResourceDefinitions of all kinds, as YAML, in the order
// in which they are to be installed.
func All() [][]byte { return [][]byte{aggregatorConfigs, memberships, scalePlans, dijobs} }

var (
	//go:embed bases/diengine.opendilab.org_aggregatorconfigs.yaml
	aggregatorConfigs []byte
	//go:embed bases/diengine.opendilab.org_dijobs.yaml
	dijobs []byte
	//go:embed bases/diengine.opendilab.org_memberships.yaml
	memberships []byte
	//go:embed bases/diengine.opendilab.org_scaleplans.yaml
	scalePlans []byte
)
