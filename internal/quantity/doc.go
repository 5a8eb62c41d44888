// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quantity refuses resource quantities that cost too much to compute
// with, before anything computes with them. To parse 1e-1000000000, or to
// compare 1e1000000000 with 1, the library works out a power of ten with a
// billion digits. Nothing cancels that.
package quantity
