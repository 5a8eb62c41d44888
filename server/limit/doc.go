// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limit bounds the load that one job or caller puts on di-server: calls per second, bytes written per
// minute, concurrent reads and log lines.
package limit

// maxKeys bounds the jobs and callers that a limit remembers.
const maxKeys = 8192
