// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package readme does what the README says, as a new user who has just cloned the
// repository: make readme-test.
package readme
