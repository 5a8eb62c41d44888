// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator places preemptible jobs. In each allocation round it reads nodes, pods and jobs, runs
// the policy of allocation, and writes the allocations.
package allocator
