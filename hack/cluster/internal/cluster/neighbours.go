// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
	"opendilab.org/di-orchestrator/hack/image/bundle"
)

// neighbour is an operator of others that jobs meet in clusters. It is not part of every cluster, because it
// takes minutes to build and only tests of it need it.
type neighbour struct {
	name string
	// programs are those of its image, by their paths in it. The image starts the one at entrypoint.
	programs   map[string]string
	entrypoint string
	// of is the program whose module has the manifests of the release, in the folder manifests.
	of, manifests string
	// ready are the arguments of kubectl commands that succeed once it works.
	ready [][]string
}

func neighbours() []neighbour {
	available := func(namespace string, deployments ...string) []string {
		return slices.Concat([]string{"wait", "--for=condition=Available", "--timeout=" + waitRound.String(), "--namespace=" + namespace}, deployments)
	}
	return []neighbour{
		{
			name: "kueue", of: build.Kueue, manifests: "config/default", programs: map[string]string{"/manager": build.Kueue}, entrypoint: "/manager",
			ready: [][]string{
				available("kueue-system", "deployment/kueue-controller-manager"),
				// Its webhooks answer about a pod, which is not created.
				{"run", "none", "--image=none", "--dry-run=server", "--namespace=default"},
			},
		},
		{
			name: "keda", of: build.KEDAOperator, manifests: "config/default", programs: map[string]string{
				"/keda": build.KEDAOperator, "/keda-adapter": build.KEDAAdapter, "/keda-admission-webhooks": build.KEDAWebhooks,
			},
			entrypoint: "/keda",
			ready: [][]string{
				available("keda", "deployment/keda-operator", "deployment/keda-metrics-apiserver", "deployment/keda-admission"),
				{"wait", "--for=condition=Available", "--timeout=" + waitRound.String(), "apiservice/v1beta1.external.metrics.k8s.io"},
			},
		},
		{
			// One image has the programs of its operator and the Prometheus that this starts.
			name: "prometheus", of: build.PrometheusOperator, manifests: ".", programs: map[string]string{
				"/prometheus-operator": build.PrometheusOperator, "/bin/prometheus-config-reloader": build.PrometheusReloader, "/bin/prometheus": build.Prometheus,
			},
			entrypoint: "/bin/prometheus",
			ready:      [][]string{available("default", "deployment/prometheus-operator")},
		},
	}
}

// names returns the names of its programs, in order.
func (n neighbour) names() []string { return slices.Sorted(maps.Values(n.programs)) }

// RunNeighbour adds a neighbour to a running cluster, with the manifests and the configuration of its release.
func (c *Cluster) RunNeighbour(ctx context.Context, name string) error {
	at := slices.IndexFunc(neighbours(), func(n neighbour) bool { return n.name == name })
	if at < 0 {
		return fmt.Errorf("there is no neighbour %q", name)
	}
	n := neighbours()[at]
	return c.locked(func() error {
		builds, err := c.cache.Steps(ctx, map[string]bool{}, n.names()...)
		if err != nil {
			return err
		}
		steps := []progress.Step{
			{Name: "load the image of " + n.name, Expected: 4 * time.Second, Run: func(ctx context.Context) error { return c.loadNeighbour(ctx, n) }},
			{Name: "install " + n.name, Expected: 8 * time.Second, Run: func(ctx context.Context) error { return c.installNeighbour(ctx, n) }},
			{Name: "wait for " + n.name, Expected: 20 * time.Second, Run: func(ctx context.Context) error { return c.awaitNeighbour(ctx, n) }},
		}
		return c.runner().Run(ctx, slices.Concat(builds, steps), 0)
	})
}

func (c *Cluster) loadNeighbour(ctx context.Context, n neighbour) error {
	var files []bundle.File
	for path, program := range n.programs {
		files = append(files, bundle.File{Source: c.cache.Path(program), Path: path})
	}
	slices.SortFunc(files, func(a, b bundle.File) int { return strings.Compare(a.Path, b.Path) })
	tarball := c.settings.State("tmp", n.name+".tar")
	_, err := bundle.WriteFile(bundle.Spec{
		Name: n.name + ":" + c.cache.Version(n.of), Platform: bundle.HostPlatform(), Entrypoint: []string{n.entrypoint}, Files: files,
	}, tarball)
	if err == nil {
		err = c.LoadImages(ctx, tarball)
	}
	return errors.Join(err, os.Remove(tarball))
}

// installNeighbour applies the manifests of the module that a neighbour is built from.
func (c *Cluster) installNeighbour(ctx context.Context, n neighbour) error {
	module, err := c.cache.ModuleFolder(ctx, n.of)
	if err != nil {
		return err
	}
	folder, err := filepath.EvalSymlinks(c.settings.StateDir) // A base is named relative to the real folder.
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	folder = filepath.Join(folder, "config", n.name)
	manifests, err := filepath.Rel(folder, filepath.Join(module, n.manifests))
	if err != nil {
		return fmt.Errorf("manifests of %s: %w", n.name, err)
	}
	text := render.Neighbour(n.name, manifests, c.cache.Version(n.of), c.settings.Nodes()[0])
	if _, err := c.writeConfig(filepath.Join(n.name, "kustomization.yaml"), text); err != nil {
		return err
	}
	// Another neighbour, whose webhooks see Deployments, may be restarting.
	_, err = c.kubectlUntilDone(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", folder)
	return err
}

func (c *Cluster) awaitNeighbour(ctx context.Context, n neighbour) error {
	for _, args := range n.ready {
		if _, err := c.kubectlUntilDone(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}
