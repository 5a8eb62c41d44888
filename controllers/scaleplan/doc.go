// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaleplan writes the status of ScalePlans, records their Events, and deletes finished ones beyond
// the history. Package scaling decides, and the controller of jobs executes. A request is a job, whose plans
// are reviewed together.
package scaleplan
