// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers is what the reconcilers below it share: the options of their
// manager's cache, how objects name the job that owns them, and the gate that they
// wait at until no other operator acts.
//
// Each reconciler is a package: dijob runs jobs, allocator places preemptible jobs,
// and storagemigration moves stored objects to another version. Each one watches,
// observes, calls a pure decider, acts on the decision, writes the status once, and
// then records events and metrics. It decides nothing itself.
package controllers
