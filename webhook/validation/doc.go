// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation implements the rules of admission: the defaults of DIJobs, the validation of
// DIJobs and AggregatorConfigs, and the warnings for their authors. An error names the path in the
// version that the author wrote, the value and what would be valid.
//
// The package is pure: it takes a Request and returns errors, warnings or a Patch. The webhooks
// serve it, and preflight applies it to stored objects.
package validation
