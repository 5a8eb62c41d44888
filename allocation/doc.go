// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation decides on which nodes the replicas of preemptible jobs
// run, and how many there are of them: policies over a snapshot of the cluster.
// It is pure: it must not read or write a cluster, log, or tell the time.
package allocation
