// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limit bounds what one job or caller may take of di-server: calls per
// second, bytes written per minute, concurrent reads and lines in the log.
package limit

// maxKeys bounds the jobs and callers that a limit remembers.
const maxKeys = 8192
