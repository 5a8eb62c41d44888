// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation decides which nodes the replicas of preemptible jobs run on, and how many replicas
// each job has. It is pure: it does not read or write a cluster, log, or read the clock.
//
// A [Snapshot] has the nodes and their free capacity. A [Round] has the jobs, the nodes and the previous
// placements. A [Policy] returns a [Placement] for each job. Policies are packages of their own, for
// example fit. They place jobs on a [Board]: jobs that keep their nodes first ([Board.Keep]), then
// the others ([Board.Place], [Board.PlaceCount]). A trial goes onto a clone ([Board.Clone]).
//
// [Within] lets a policy decide within what the API server admits: the [Quota] of namespaces, and the
// [Bound] of jobs.
//
// Placements are written one by one, and each write may fail. A [Ledger] tells the writer when a
// placement fits beside those that are written, so that the written placements never exceed the
// capacity of the nodes.
package allocation
