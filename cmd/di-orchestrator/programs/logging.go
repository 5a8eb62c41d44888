// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logOptions configure the verbosity and the format of the log.
type logOptions struct {
	level  string
	format string
}

func (o *logOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.level, "log-level", "info", "minimum log level: debug, info, warn or error")
	flags.StringVar(&o.format, "log-format", "json", "log format: json or console")
}

// newLogger returns the logger of the whole process, including client-go.
func (o *logOptions) newLogger() (logr.Logger, error) {
	level, err := zapcore.ParseLevel(o.level)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level %q: want debug, info, warn or error: %w", o.level, err)
	}
	var config zap.Config
	switch o.format {
	case "json":
		config = zap.NewProductionConfig()
		config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	case "console":
		config = zap.NewDevelopmentConfig()
	default:
		return logr.Logger{}, fmt.Errorf("--log-format %q: want json or console", o.format)
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
