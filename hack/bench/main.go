// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures di-orchestrator. Each figure has a reference that the same run measures:
// bench SCENARIO [flags]. bench report writes docs/benchmarks.md from what was measured.
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

	"opendilab.org/di-orchestrator/hack/bench/internal/controller"
	"opendilab.org/di-orchestrator/hack/bench/internal/conversion"
	"opendilab.org/di-orchestrator/hack/bench/internal/gang"
	"opendilab.org/di-orchestrator/hack/bench/internal/growth"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/hack/bench/internal/report"
	"opendilab.org/di-orchestrator/hack/bench/internal/server"
	"opendilab.org/di-orchestrator/hack/bench/internal/shards"
	"opendilab.org/di-orchestrator/hack/bench/internal/upgrade"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == report.Name {
		return report.Run(arguments[1:])
	}
	names := []string{report.Name}
	for _, create := range []func() *harness.Scenario{controller.New, conversion.New, gang.New, growth.New, server.New, shards.New, upgrade.New} {
		scenario := create()
		if len(arguments) > 0 && arguments[0] == scenario.Name {
			return scenario.Run(ctx, arguments[1:])
		}
		names = append(names, scenario.Name)
	}
	return fmt.Errorf("the first argument names a scenario: one of %s", strings.Join(names, ", "))
}
