// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

// newLogger returns the logger of the whole process, including client-go.
func newLogger(minimum string, format configv1alpha1.LogFormat) (logr.Logger, error) {
	level, err := zapcore.ParseLevel(minimum)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level %q: want debug, info, warn or error: %w", minimum, err)
	}
	config := zap.NewProductionConfig()
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	if format == configv1alpha1.LogConsole {
		config = zap.NewDevelopmentConfig()
	}
	config.Level = zap.NewAtomicLevelAt(level)
	config.DisableStacktrace = true
	logger, err := config.Build()
	if err != nil {
		return logr.Logger{}, fmt.Errorf("making the logger: %w", err)
	}
	log := zapr.NewLogger(logger)
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	return log, nil
}
