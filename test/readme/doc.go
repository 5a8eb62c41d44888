// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readme executes the README as a new user who has just cloned the repository: `make
// readme-test`.
package readme
