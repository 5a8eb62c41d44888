// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile attacks the programs as strangers, authors of jobs and pods of jobs can: with
// huge, malformed and endless input. Each attack runs against the built binary under the memory
// limits of the chart while regular clients use the same programs. An attack passes if every
// program survives, every call of the regular clients succeeds and nothing of theirs changes.
package hostile
