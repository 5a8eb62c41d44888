// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/network"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// errFirstNode is the reason why a node cannot be stopped.
var errFirstNode = errors.New("the control plane is on this node: take the cluster down instead")

// StopNode ends a node like a power failure: it is off the network immediately, and its programs
// and containers are killed without notice. Its disk remains.
func (c *Cluster) StopNode(ctx context.Context, name string) error {
	node, err := c.node(name)
	if err != nil {
		return err
	}
	if node.IsFirst() {
		return fmt.Errorf("stop node %s: %w", name, errFirstNode)
	}
	return c.steps(ctx, []progress.Step{
		{Name: "unplug node " + name, Run: func(context.Context) error { return network.Unplug(c.settings, node) }},
		{Name: "end its programs", Run: func(ctx context.Context) error { return c.endNode(ctx, node) }},
		{Name: "forget what was in its memory", Run: func(context.Context) error { return forgetMemory(node) }},
	})
}

// endNode ends a node's programs and all processes that they have started.
func (c *Cluster) endNode(ctx context.Context, node settings.Node) error {
	if err := c.endStartersOf(ctx, node); err != nil {
		return err
	}
	if err := machine.RemoveCgroup(ctx, node.Cgroup()); err != nil {
		return err
	}
	running, err := process.Find(c.settings.StateDir)
	if err != nil {
		return err
	}
	return process.End(ctx, startedBy(node, running), killAtOnce)
}

// startedBy returns a node's daemons and the processes that they have started.
func startedBy(node settings.Node, running []process.Process) []process.Process {
	var found []process.Process
	for _, p := range running {
		if p.Name == node.Daemon(build.Kubelet) || p.Name == node.Daemon(build.Containerd) {
			found = append(found, p)
		}
	}
	return found
}

// forgetMemory removes what a machine has only in memory: volumes of secrets, and records of
// running containers.
func forgetMemory(node settings.Node) error {
	if err := machine.Unmount(node.State("kubelet")); err != nil {
		return err
	}
	return forgetContainers(node)
}

// StartNode starts a stopped node.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	node, err := c.node(name)
	if err != nil {
		return err
	}
	return c.steps(ctx, []progress.Step{
		{Name: "run containerd and kubelet of node " + name, Expected: 3 * time.Second, Run: func(ctx context.Context) error {
			return c.runNode(ctx, node)
		}},
		{Name: "wait for the node", Expected: 3 * time.Second, Run: func(ctx context.Context) error {
			return c.ensureNode(ctx, node)
		}},
	})
}

func (c *Cluster) node(name string) (settings.Node, error) {
	node, found := c.settings.Node(name)
	if !found {
		var names []string
		for _, node := range c.settings.Nodes() {
			names = append(names, node.Name())
		}
		return node, fmt.Errorf("node %q: want one of %s", name, strings.Join(names, ", "))
	}
	return node, nil
}
