// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package experiment

import "time"

func processorTime() time.Time { return time.Now() }
