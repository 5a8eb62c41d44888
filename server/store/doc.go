// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store reads and edits the objects that requests name. It reads from caches whose watches it
// follows, and live. Each edit is one optimistic update. Transient failures are retried. The edit is
// recorded, so a repeated request gets the first answer and is not applied twice.
package store
