// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"opendilab.org/di-orchestrator/internal/telemetry"
)

// registerBuild registers the metric of the running version.
func registerBuild(registerer prometheus.Registerer, version string) error {
	build := &telemetry.Set{}
	build.Gauge(telemetry.Metric{
		Name: "di_orchestrator_build_info", Help: "Always 1; the labels have the program's version and the Go version of its build.", Unit: "none",
		Labels: []telemetry.Label{
			{Name: "version", Values: []string{version}, About: "the program's version"},
			{Name: "goversion", Values: []string{runtime.Version()}, About: "Go's version"},
		},
	}).WithLabelValues(version, runtime.Version()).Set(1)
	if err := registerer.Register(build); err != nil {
		return fmt.Errorf("registering the metric of the build: %w", err)
	}
	return nil
}
