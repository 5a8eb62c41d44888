// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dijob runs jobs. It watches jobs and the objects that they own. Each reconcile observes, calls
// lifecycle.Decide, acts on the decision, writes the status once, and then records events and metrics.
package dijob
