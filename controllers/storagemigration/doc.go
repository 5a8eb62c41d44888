// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagemigration moves stored objects to another version, and has versions
// served, as the annotations of the definition of DIJobs ask for. Each reconcile takes
// one step that migration.Decide chose, and records how far it is.
package storagemigration
