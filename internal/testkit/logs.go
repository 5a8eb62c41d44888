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

// ObserveLog returns a logger as the programs have one, and the lines that it
// logged, those of debugging too.
func ObserveLog() (logr.Logger, *observer.ObservedLogs) {
	core, lines := observer.New(zapcore.DebugLevel)
	return zapr.NewLogger(zap.New(core)), lines
}
