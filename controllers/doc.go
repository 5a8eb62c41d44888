// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers contains what its reconcilers share: the options of their manager's cache, the
// format of references to the owning job, and the gate that delays them until no other operator acts.
//
// Each reconciler is a package: dijob runs jobs, allocator places preemptible jobs, and storagemigration
// rewrites stored objects in another version. Each one watches, observes, calls a pure decider, acts on
// the decision, writes the status once, and then records events and metrics. It makes no decisions itself.
package controllers
