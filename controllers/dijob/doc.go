// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dijob runs jobs: it watches them and the objects that they own, observes,
// calls lifecycle.Decide, acts on the decision, writes the status once, and then
// records events and metrics.
package dijob
