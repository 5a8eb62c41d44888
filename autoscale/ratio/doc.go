// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ratio decides how many producers of samples, such as collectors, a consumer
// such as a learner needs.
//
// An Estimator turns cumulative counters of replicas into capacities: what a producer
// makes while nothing blocks it, and what the consumer takes while it never waits. Decide
// divides the two (feed-forward), corrects the quotient by how far the queue is from its
// target (a slow PI controller), and limits how often and how far the size changes.
// docs/ratio.md describes the rule and its figures.
package ratio
