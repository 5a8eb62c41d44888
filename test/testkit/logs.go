// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// ObserveLog returns a logger configured as in the programs, and the lines that it logged,
// including debug lines.
func ObserveLog() (logr.Logger, *observer.ObservedLogs) {
	core, lines := observer.New(zapcore.DebugLevel)
	return zapr.NewLogger(zap.New(core)), lines
}
