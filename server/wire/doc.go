// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire reads the requests of di-server's protocols and holds their
// answers: v1alpha1 for coordinator-led jobs, v2alpha1 for worker-led ones.
// Deployed clients depend on every field and message. It is pure.
package wire
