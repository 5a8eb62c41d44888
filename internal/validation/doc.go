// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation has the rules of admission: the defaults of DIJobs, whether
// DIJobs and AggregatorConfigs are valid, and the warnings for their authors. An
// error names the path in the version that the author wrote, the value and what would
// be right.
//
// It is pure: a Request in, errors, warnings or a Patch out. The webhooks serve it,
// and preflight applies it to stored objects.
package validation
