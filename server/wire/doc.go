// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire parses the requests and encodes the answers of di-server's protocols: v1alpha1 for
// coordinator-led jobs, v2alpha1 for worker-led jobs. Deployed clients depend on every field and message.
// It is pure.
package wire
