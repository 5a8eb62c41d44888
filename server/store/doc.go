// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store reads the objects that requests are about, from caches whose
// watches it follows and live, and edits them: each edit is one optimistic
// update, retried while failures are transient, and recorded so that a repeat
// of its request is answered and not applied twice.
package store
