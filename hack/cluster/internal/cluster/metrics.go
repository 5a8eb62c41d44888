// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/pki"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// RunMetrics adds metrics-server to a running cluster: it serves what pods and nodes use. It is not part of
// every cluster, because it takes minutes to build and only tests of usage need it.
func (c *Cluster) RunMetrics(ctx context.Context) error {
	return c.locked(func() error {
		builds, err := c.cache.Steps(ctx, map[string]bool{}, build.MetricsServer)
		if err != nil {
			return err
		}
		steps := []progress.Step{
			{Name: "run metrics-server", Expected: 2 * time.Second, Run: c.runMetrics},
			{Name: "wait for the first metrics", Expected: 20 * time.Second, Run: c.ensureMetrics},
		}
		return c.runner().Run(ctx, slices.Concat(builds, steps), 0)
	})
}

func (c *Cluster) runMetrics(ctx context.Context) error {
	return c.run(ctx, c.metricsSpec(), dialing("tcp", c.settings.OnGateway(settings.MetricsPort)))
}

// metricsSpec runs metrics-server on the machine, as the administrator. It serves a certificate of its own.
func (c *Cluster) metricsSpec() process.Spec {
	kubeconfig := c.Kubeconfig()
	return process.Spec{
		Name: build.MetricsServer, Program: c.cache.Path(build.MetricsServer), Inputs: []string{c.authorityContent()},
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + c.settings.Gateway().String(), fmt.Sprintf("--secure-port=%d", settings.MetricsPort),
			"--cert-dir=" + c.settings.State("tmp", "metrics-server"),
			"--kubelet-certificate-authority=" + c.pkiFile(pki.CA+".crt"),
			"--kubelet-preferred-address-types=InternalIP", "--kubelet-use-node-status-port",
			"--metric-resolution=10s", "--kubelet-request-timeout=5s",
		},
	}
}

// ensureMetrics registers metrics-server with the API server, and waits until it has measured a node.
func (c *Cluster) ensureMetrics(ctx context.Context) error {
	if _, err := c.kubectl(ctx, render.MetricsObjects(c.settings), "apply", "-f", "-"); err != nil {
		return err
	}
	_, err := c.kubectlUntilDone(ctx, "top", "nodes")
	return err
}
