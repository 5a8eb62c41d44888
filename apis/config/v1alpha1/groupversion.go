// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the file that the operator, the webhooks and di-server
// read by `--config` when they start. The chart writes it from its value
// `configuration`, as by `--set configuration.operator.shards=2`, and restarts
// the programs after a change. Fractions need `--set-json` or a file of values.
// Without the chart, edit ConfigMap `di-orchestrator-configuration`, and restart
// the Deployments.
//
// A field that is absent has its default. Durations are such as 90s or 1m30s.
// A wrong or unknown field is refused, and so are flags of earlier builds that
// are fields now; the error names the field.
//
// +groupName=config.diengine.opendilab.org
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kind is the kind of the file.
const Kind = "Configuration"

// GroupVersion is the group and version of the file. The API server does not
// know them.
var GroupVersion = schema.GroupVersion{Group: "config.diengine.opendilab.org", Version: "v1alpha1"}
