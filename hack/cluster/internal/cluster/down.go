// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/network"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// killAtOnce is the grace period of processes whose state is deleted anyway.
const killAtOnce = 0 * time.Second

// Down stops the cluster and removes everything it created on this machine, except the cache.
func (c *Cluster) Down(ctx context.Context) error {
	if err := machine.CheckRoot(); err != nil {
		return err
	}
	if err := c.checkOwned(); err != nil {
		return err
	}
	return c.steps(ctx, []progress.Step{
		{Name: "end the programs that start others", Run: c.endStarters},
		{Name: "end all containers", Run: c.endContainers},
		{Name: "end the other programs", Run: c.endAll},
		{Name: "remove the pod network", Run: c.removeNetwork},
		{Name: "remove traces outside the state directory", Run: func(context.Context) error { return c.traces().Remove(c.tracesRecord()) }},
		{Name: "restore kernel settings", Run: func(context.Context) error { return machine.RestoreSysctls(c.sysctlRecord()) }},
		{Name: "remove the state directory", Run: c.removeState},
	})
}

// checkOwned prevents the removal of a mistyped state directory.
func (c *Cluster) checkOwned() error {
	entries, err := os.ReadDir(c.settings.StateDir)
	if errors.Is(err, os.ErrNotExist) || err == nil && (len(entries) == 0 || onlyPartial(entries)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if _, err := os.Stat(c.identityFile()); err != nil {
		return fmt.Errorf("state directory %s is not one of a cluster (%w): nothing is removed", c.settings.StateDir, err)
	}
	return nil
}

func (c *Cluster) endStarters(ctx context.Context) error {
	for _, node := range c.settings.Nodes() {
		if err := c.endStartersOf(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// endStartersOf ends a node's kubelet first, then its containerd, so that they do not restart other
// processes.
func (c *Cluster) endStartersOf(ctx context.Context, node settings.Node) error {
	for _, program := range []string{build.Kubelet, build.Containerd} {
		running, err := process.Find(c.settings.StateDir)
		if err != nil {
			return err
		}
		mine := process.Of(process.Spec{Name: node.Daemon(program), Program: program}, running)
		if err := process.End(ctx, mine, killAtOnce); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) endContainers(ctx context.Context) error {
	for _, node := range c.settings.Nodes() {
		if err := machine.RemoveCgroup(ctx, node.Cgroup()); err != nil {
			return err
		}
	}
	return nil
}

// endAll ends all processes with the marks of this cluster, including containerd's helpers.
func (c *Cluster) endAll(ctx context.Context) error {
	running, err := process.Find(c.settings.StateDir)
	if err != nil {
		return err
	}
	return process.End(ctx, running, killAtOnce)
}

func (c *Cluster) removeNetwork(context.Context) error {
	// The table of kube-proxy belongs to another cluster if this one's kube-proxy never ran.
	if _, err := os.Stat(c.configFile("kube-proxy.yaml")); err == nil {
		if err := network.RemoveProxyTables(); err != nil {
			return err
		}
	}
	if err := network.RemoveTables(settings.NFTable); err != nil {
		return err
	}
	for _, node := range c.settings.Nodes() {
		if err := network.RemoveBridge(c.settings, node); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) removeState(context.Context) error {
	return machine.RemoveTree(c.settings.StateDir)
}
