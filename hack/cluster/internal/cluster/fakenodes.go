// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
)

// fakePodCIDR is where pods on fake nodes get their addresses from: a network
// set aside for benchmarks, which leads nowhere.
const fakePodCIDR = "198.18.0.0/16"

func (c *Cluster) ensureFakeNodes(ctx context.Context) error {
	if err := c.removeSurplusNodes(ctx); err != nil {
		return err
	}
	if c.settings.FakeNodes == 0 {
		return c.stopKwok(ctx)
	}
	if err := c.runKwok(ctx); err != nil {
		return err
	}
	nodes := render.FakeNodes(c.settings.FakeNodes, c.settings.GPUs, c.settings.FakeNodesOpen)
	if _, err := c.kubectl(ctx, nodes, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return err
	}
	return c.await(ctx, "--for=condition=Ready", "node", "-l", render.FakeLabel)
}

func (c *Cluster) removeSurplusNodes(ctx context.Context) error {
	listed, err := c.kubectl(ctx, "", "get", "nodes", "-l", render.FakeLabel, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	surplus := render.SurplusNodes(strings.Fields(listed), c.settings.FakeNodes)
	if len(surplus) == 0 {
		return nil
	}
	_, err = c.kubectl(ctx, "", append([]string{"delete", "nodes", "--wait=false"}, surplus...)...)
	return err
}

func (c *Cluster) kwokSpec() process.Spec {
	args := []string{
		"--kubeconfig=" + c.Kubeconfig(), "--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--node-lease-duration-seconds=40", "--cidr=" + fakePodCIDR, "--node-ip=198.18.0.1",
	}
	for _, stage := range []string{build.KwokNodeStage, build.KwokPodReady, build.KwokPodComplete, build.KwokPodDelete} {
		args = append(args, "--config="+c.cache.Path(stage))
	}
	return process.Spec{Name: build.Kwok, Program: c.cache.Path(build.Kwok), Args: args, Inputs: []string{c.authorityContent()}}
}

func (c *Cluster) runKwok(ctx context.Context) error {
	// It listens on nothing; that it keeps running shows when nodes get ready.
	return c.run(ctx, c.kwokSpec(), func(context.Context) error { return nil })
}

func (c *Cluster) stopKwok(ctx context.Context) error {
	running, err := process.Find(c.settings.StateDir)
	if err != nil {
		return err
	}
	return process.End(ctx, process.Of(c.kwokSpec(), running), killAtOnce)
}
