// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
	"opendilab.org/di-orchestrator/hack/image/bundle"
)

// RunKueue adds Kueue to a running cluster, with the manifests and the configuration of its release. It
// is not part of every cluster, because it takes minutes to build and only tests of queues need it.
func (c *Cluster) RunKueue(ctx context.Context) error {
	return c.locked(func() error {
		builds, err := c.cache.Steps(ctx, map[string]bool{}, build.Kueue)
		if err != nil {
			return err
		}
		steps := []progress.Step{
			{Name: "load the image of Kueue", Expected: 4 * time.Second, Run: c.loadKueue},
			{Name: "install Kueue", Expected: 8 * time.Second, Run: c.installKueue},
			{Name: "wait for Kueue", Expected: 20 * time.Second, Run: c.awaitKueue},
		}
		return c.runner().Run(ctx, slices.Concat(builds, steps), 0)
	})
}

func (c *Cluster) loadKueue(ctx context.Context) error {
	tarball := c.settings.State("tmp", "kueue.tar")
	_, err := bundle.WriteFile(bundle.Spec{
		Name: build.Kueue + ":" + c.cache.Version(build.Kueue), Platform: bundle.HostPlatform(), Entrypoint: []string{"/manager"},
		Files: []bundle.File{{Source: c.cache.Path(build.Kueue), Path: "/manager"}},
	}, tarball)
	if err == nil {
		err = c.LoadImages(ctx, tarball)
	}
	return errors.Join(err, os.Remove(tarball))
}

// installKueue applies the manifests of the module that Kueue is built from.
func (c *Cluster) installKueue(ctx context.Context) error {
	module, err := c.cache.ModuleFolder(ctx, build.Kueue)
	if err != nil {
		return err
	}
	folder, err := filepath.EvalSymlinks(c.settings.StateDir) // A base is named relative to the real folder.
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	folder = filepath.Join(folder, "config", build.Kueue)
	manifests, err := filepath.Rel(folder, filepath.Join(module, "config", "default"))
	if err != nil {
		return fmt.Errorf("manifests of Kueue: %w", err)
	}
	text := render.Kueue(manifests, build.Kueue, c.cache.Version(build.Kueue), c.settings.Nodes()[0])
	if _, err := c.writeConfig(filepath.Join(build.Kueue, "kustomization.yaml"), text); err != nil {
		return err
	}
	_, err = c.kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "--kustomize", folder)
	return err
}

// awaitKueue waits until Kueue's webhooks answer about a pod, which is not created.
func (c *Cluster) awaitKueue(ctx context.Context) error {
	if err := c.await(ctx, "--for=condition=Available", "--namespace=kueue-system", "deployment/kueue-controller-manager"); err != nil {
		return err
	}
	_, err := c.kubectlUntilDone(ctx, "run", "none", "--image=none", "--dry-run=server", "--namespace=default")
	return err
}
