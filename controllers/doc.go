// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers runs jobs: it watches them and their objects, observes,
// calls a pure decider, acts on the decision, writes the status once, and then
// tells of it by events and metrics. It decides nothing itself.
package controllers
