// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/network"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// reportEvery is the interval at which a long step reports its progress.
const reportEvery = 20 * time.Second

// Up starts the cluster. It builds missing programs and starts daemons that are not running. It
// does not restart the others.
func (c *Cluster) Up(ctx context.Context) error { return c.up(ctx, nil, nil, 0) }

// Demo starts the cluster and loads the images of the demo, which `make` builds first, so that one
// estimate covers all of `make demo`.
func (c *Cluster) Demo(ctx context.Context, tarballs []string) error {
	targets := []build.MakeTarget{
		{Name: "helm", Module: "hack/helm", Packages: []string{"helm.sh/helm/v4/cmd/helm"}},
		{Name: "images", Packages: []string{"./cmd/di-orchestrator", "./cmd/kubectl-di", "./test/workload/cartpole", "./hack/demo"}},
	}
	load := progress.Step{Name: "load the images", Expected: 5 * time.Second, Run: func(ctx context.Context) error {
		return c.LoadImages(ctx, tarballs...)
	}}
	return c.up(ctx, targets, []progress.Step{load}, demoTime)
}

// demoTime is the expected duration of the demo's installation and training.
const demoTime = time.Minute

func (c *Cluster) up(ctx context.Context, first []build.MakeTarget, last []progress.Step, afterwards time.Duration) error {
	if err := c.checkMachine(ctx); err != nil {
		return err
	}
	packages := c.cache.MissingPackages()
	if err := c.cache.CheckPackages(packages); err != nil {
		return machine.UnsuitableError{Reason: err}
	}
	c.announce(packages)
	return c.locked(func() error {
		// The packages come first because runc's build uses them.
		if err := c.runner().Run(ctx, c.cache.PackageSteps(packages), 0); err != nil {
			return err
		}
		counted := map[string]bool{}
		targets, err := c.cache.MakeSteps(ctx, counted, first...)
		if err != nil {
			return err
		}
		optional := []string{build.MetricsServer}
		for _, n := range neighbours() {
			optional = append(optional, n.names()...)
		}
		isOptional := func(name string) bool { return slices.Contains(optional, name) }
		builds, err := c.cache.Steps(ctx, counted, slices.DeleteFunc(c.cache.All(), isOptional)...)
		if err != nil {
			return err
		}
		return c.runner().Run(ctx, slices.Concat(targets, builds, c.startSteps(), last), afterwards)
	})
}

func (c *Cluster) runner() *progress.Runner { return progress.NewRunner(c.out, reportEvery) }

// locked runs a function that changes the cache or the cluster while no other run does.
func (c *Cluster) locked(do func() error) error {
	unlock, err := build.Lock(c.settings.CacheDir, func() { c.printf("waiting for another run that uses the cache\n") })
	if err != nil {
		return err
	}
	return errors.Join(do(), unlock())
}

// steps runs steps while no other run changes the cluster.
func (c *Cluster) steps(ctx context.Context, steps []progress.Step) error {
	if err := machine.CheckRoot(); err != nil {
		return err
	}
	return c.locked(func() error { return c.runner().Run(ctx, steps, 0) })
}

// build builds programs. It needs no privileges.
func (c *Cluster) build(ctx context.Context, names ...string) error {
	return c.locked(func() error {
		steps, err := c.cache.Steps(ctx, map[string]bool{}, names...)
		if err != nil {
			return err
		}
		return c.runner().Run(ctx, steps, 0)
	})
}

// BuildAssets builds only the programs that tests against an API server need, and returns their
// folder.
func (c *Cluster) BuildAssets(ctx context.Context) (string, error) {
	if err := c.build(ctx, build.AssetNames()...); err != nil {
		return "", err
	}
	return c.cache.AssetsDir() + "\n", c.cache.LinkAssets()
}

// BuildProgram builds a single program and returns its path.
func (c *Cluster) BuildProgram(ctx context.Context, name string) (string, error) {
	return c.cache.Path(name) + "\n", c.build(ctx, name)
}

// Programs returns the names that BuildProgram accepts.
func (c *Cluster) Programs() []string { return c.cache.All() }

func (c *Cluster) checkMachine(ctx context.Context) error {
	if err := machine.Check(); err != nil {
		return err
	}
	if err := errors.Join(network.CheckFree(c.settings), c.checkNoOtherKubelet(ctx)); err != nil {
		return machine.UnsuitableError{Reason: err}
	}
	return nil
}

// checkNoOtherKubelet returns an error if the machine is a node of another cluster. Two kubelets
// would both use this socket, whose path is fixed.
func (c *Cluster) checkNoOtherKubelet(ctx context.Context) error {
	if _, err := os.Stat(c.identityFile()); err == nil {
		return nil
	}
	const socket = "/var/lib/kubelet/device-plugins/kubelet.sock"
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil //nolint:nilerr // Nobody listens, which is what is wanted.
	}
	return errors.Join(fmt.Errorf("this machine is a node of another Kubernetes, whose kubelet listens on %s", socket), conn.Close())
}

// announce prints the changes to the machine before they happen.
func (c *Cluster) announce(packages []string) {
	s := c.settings
	c.printf("cache %s, state %s\n", s.CacheDir, s.StateDir)
	var bridges, cgroups []string
	for _, node := range s.Nodes() {
		bridges, cgroups = append(bridges, node.Bridge()), append(cgroups, node.Cgroup())
	}
	c.printf("on this machine: bridges %s (%s, Services %s), nftables tables %s and kube-proxy, cgroups %s, kernel settings (restored by down)\n",
		strings.Join(bridges, " and "), s.PodCIDR, s.ServiceCIDR, settings.NFTable, strings.Join(cgroups, " and "))
	for _, pkg := range packages {
		c.printf("Debian's package %s is needed: it is unpacked into the cache by apt-get, and not installed\n", pkg)
	}
}

// startSteps returns the steps that start the cluster from built programs, in the order of their
// dependencies.
func (c *Cluster) startSteps() []progress.Step {
	const seconds = time.Second
	steps := []progress.Step{
		{Name: "prepare the state directory", Run: c.prepareState},
		{Name: "set up the pod network", Run: c.ensureNetwork},
		{Name: "make certificates", Run: c.ensureIdentities},
		{Name: "run etcd", Expected: seconds, Run: c.runEtcd},
		{Name: "run kube-apiserver", Expected: 6 * seconds, Run: c.runAPIServer},
		{Name: "run kube-controller-manager", Expected: 2 * seconds, Run: c.runControllerManager},
		{Name: "run kube-scheduler", Expected: 2 * seconds, Run: c.runScheduler},
		{Name: "put the first objects into the cluster", Expected: 2 * seconds, Run: c.ensureObjects},
	}
	for _, node := range c.settings.Nodes() {
		steps = append(steps, progress.Step{
			Name: "run containerd and kubelet of node " + node.Name(), Expected: 3 * seconds,
			Run: func(ctx context.Context) error { return c.runNode(ctx, node) },
		})
	}
	return append(steps, []progress.Step{
		{Name: "run kube-proxy", Expected: 2 * seconds, Run: c.runProxy},
		{Name: "run CoreDNS", Expected: 2 * seconds, Run: c.runDNS},
		{Name: fmt.Sprintf("wait for the nodes and their %d GPUs each", settings.GPUs), Expected: 3 * seconds, Run: c.ensureNodes},
	}...)
}

func (c *Cluster) prepareState(context.Context) error {
	if err := c.claimState(); err != nil {
		return err
	}
	for _, dir := range []string{"tmp", "logs", "config"} {
		if err := os.MkdirAll(c.settings.State(dir), 0o755); err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
	}
	// Only root may list it because it contains the keys of the cluster.
	if err := os.Chmod(c.settings.StateDir, 0o711); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if err := c.traces().Record(c.tracesRecord()); err != nil {
		return err
	}
	if err := c.forgetOldBoot(); err != nil {
		return err
	}
	return c.cache.LinkAssets()
}

func (c *Cluster) traces() machine.Traces {
	return machine.Traces{Root: "/", StateDir: c.settings.StateDir, Network: settings.Network}
}

func (c *Cluster) tracesRecord() string { return c.settings.State("absent-before.json") }

func (c *Cluster) ensureNetwork(context.Context) error {
	if err := machine.ApplySysctls(c.sysctlRecord()); err != nil {
		return err
	}
	if err := network.EnsureBridge(c.settings, c.settings.Nodes()[0]); err != nil {
		return err
	}
	return network.EnsureMasquerade(c.settings)
}

func (c *Cluster) sysctlRecord() string { return c.settings.State("kernel-settings.json") }

// LoadImages imports image tarballs into every node, so that pods can use them without a
// registry.
func (c *Cluster) LoadImages(ctx context.Context, tarballs ...string) error {
	for _, node := range c.settings.Nodes() {
		if err := dialing("unix", node.ContainerdSocket())(ctx); err != nil {
			return fmt.Errorf("node %s does not run (%w): bring the cluster up first", node.Name(), err)
		}
	}
	for _, tarball := range tarballs {
		for _, node := range c.settings.Nodes() {
			if _, err := c.ctr(ctx, node, "images", "import", tarball); err != nil {
				return err
			}
		}
		c.printf("loaded %s\n", tarball)
	}
	return nil
}
