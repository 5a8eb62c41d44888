// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admissionprobe checks that the API server admits, defaults and converts jobs:
// it creates a job without storing it.
package admissionprobe
