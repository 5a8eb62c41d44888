// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quantity rejects resource quantities that are too expensive to parse or compare, before
// any other code uses them. To parse 1e-1000000000, or to compare 1e1000000000 with 1, the library
// computes a power of ten with a billion digits. Nothing cancels that computation.
package quantity
