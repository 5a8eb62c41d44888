// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload builds the Pods and Services that a job wants, from its
// spec and the place that each pod takes. It is pure: it reads no cluster, no
// clock and no source of randomness, and the same input gives the same object.
package workload
