// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures di-orchestrator. Each figure has a reference that the same run measures:
// bench MEASUREMENT [flags]. bench report writes docs/benchmarks.md from what was measured.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/hack/bench/internal/measure"
	"opendilab.org/di-orchestrator/hack/bench/internal/report"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := choose(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func choose(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == report.Name {
		return report.Run(arguments[1:])
	}
	names := []string{report.Name}
	for _, each := range []run.Measurement{
		measure.NewGrowth(), measure.NewStart(), measure.NewSize(), measure.NewShards(), measure.NewKill(), measure.NewReports(), measure.NewHistory(), measure.NewRecords(),
	} {
		if len(arguments) > 0 && arguments[0] == each.Name() {
			return run.Do(ctx, each, arguments[1:])
		}
		names = append(names, each.Name())
	}
	return fmt.Errorf("the first argument names a measurement: one of %s", strings.Join(names, ", "))
}
