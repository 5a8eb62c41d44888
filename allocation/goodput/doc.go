// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package goodput is the policy that decides how many replicas each job gets, so that
// jobs complete early on average: it gives capacity to the jobs that make most of it.
//
// A round has four steps. It learns a model of each job's goodput (learn.go), finds the
// price of capacity and what each job's speed is worth (price.go, decide.go), chooses
// replicas within the capacity (choose.go), and places them on nodes (place.go).
package goodput
