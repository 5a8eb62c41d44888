// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator places preemptible jobs: in rounds it reads nodes, pods and jobs,
// asks the policy of internal/allocator, and writes the allocations.
package allocator
