// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netlimit limits the resources of a server that unknown clients can use: connections, the time to
// receive a body, and the total memory of bodies.
package netlimit
