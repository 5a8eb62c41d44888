// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// Exit codes.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitUnsuitable = 3
)
