// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model predicts the goodput of a data-parallel training job: how many
// useful samples it trains per second with some replicas on some nodes, at the
// batch size that suits them best. Goodput is throughput times statistical
// efficiency. Both models, the fit and the bounds are those of Pollux (Qiao et al.,
// OSDI 2021, sections 3.1, 3.2 and 4.1) as AdaptDL implements them.
//
// The package is pure: it computes, and has no clock, no log and no client.
package model
