// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagemigration rewrites stored objects in another version, and selects the served versions.
// The annotations of DIJob's CustomResourceDefinition specify both. Each reconcile takes one step that
// migration.Decide has chosen, and records the progress.
package storagemigration
