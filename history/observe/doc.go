// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observe computes what the history remembers of a job from what was recorded before and from
// what is observed now. It is pure.
package observe
