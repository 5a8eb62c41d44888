// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netlimit bounds what strangers can take of a server: connections, the
// time in which a body comes, and the memory that bodies have together.
package netlimit
