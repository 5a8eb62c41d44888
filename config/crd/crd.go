// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions that this program was built
// with.
package crd

import _ "embed"

// DIJobs returns the CustomResourceDefinition of DIJobs, as YAML.
func DIJobs() []byte { return dijobs }

//go:embed bases/diengine.opendilab.org_dijobs.yaml
var dijobs []byte
