// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload builds the desired Pods and Services of a job from its spec and each pod's rank
// or slot. It is pure: it reads no cluster, no clock and no source of randomness. The same input
// gives the same object.
package workload
