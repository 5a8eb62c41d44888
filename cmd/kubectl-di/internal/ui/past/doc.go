// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package past makes the views of recorded jobs. It decides nothing about who may see them.
package past
