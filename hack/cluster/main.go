// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command cluster runs a real Kubernetes on a bare Linux machine. It needs no container engine and
// no registry. It downloads only Go modules and at most two small Debian packages. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/cluster"
	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

const usage = `usage: cluster COMMAND

  up                    build what is missing, start what does not run, and print how to use it
  demo FILE.tar         bring it up with the images of the demo, which make builds first
  down                  end the cluster and remove everything it made but the cache
  status                show what runs and how to use it; fails if the cluster is not complete
  load-image FILE.tar   import image tarballs, so that pods can use them without a registry
  node stop NAME        end a node as a power failure does
  node start NAME       bring it back
  metrics               run metrics-server, which only tests of usage need, in the running cluster
  kueue                 run Kueue, which only tests of queues need, in the running cluster
  keda                  run KEDA, which only tests of autoscaling need, in the running cluster
  prometheus            run the operator of Prometheus, which only tests of monitoring need, in the running cluster
  assets                build etcd, kube-apiserver and kubectl, and print their folder for KUBEBUILDER_ASSETS
  program NAME          build one of the programs, such as kube-scheduler, and print its path
  env                   print shell commands that make kubectl use the cluster
`

// These are the exit codes.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitUnsuitable = 3
)

// errUsage means a wrong command line or environment.
var errUsage = errors.New("wrong use")

// errExternal rejects commands that only work for the cluster of this machine.
var errExternal = errors.New("KUBECONFIG names another cluster: load images into it (kind load image-archive FILE, or a registry), and stop its nodes, in its own way")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var unsuitable machine.UnsuitableError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &unsuitable), errors.Is(err, errExternal):
		return exitUnsuitable
	case errors.Is(err, errUsage):
		return exitUsage
	}
	return exitFailed
}

// execute runs a command. It prints output for other programs to out, and progress to standard
// error.
func execute(ctx context.Context, args []string, out io.Writer) error {
	command, args := strings.Join(args[:min(len(args), 1)], ""), args[min(len(args), 1):]
	if command == "node" && len(args) > 0 {
		command, args = "node "+args[0], args[1:]
	}
	// These are the numbers of arguments. load-image and demo require at least one.
	wanted, known := map[string]int{
		"up": 0, "metrics": 0, "kueue": 0, "keda": 0, "prometheus": 0, "down": 0, "status": 0, "env": 0, "assets": 0, "program": 1, "node stop": 1, "node start": 1, "load-image": max(len(args), 1), "demo": max(len(args), 1),
	}[command]
	if !known || len(args) != wanted {
		return fmt.Errorf("%w: %q\n%s", errUsage, strings.Join(os.Args[1:], " "), usage)
	}
	s, err := settings.FromEnvironment(os.Getenv, ".")
	if err != nil {
		return errors.Join(errUsage, err)
	}
	if command == "down" { // The checkout that brought the cluster up may be gone.
		return cluster.New(s, nil, os.Stderr).Down(ctx)
	}
	cache, err := build.Open(s.CacheDir, s.SourceDir)
	if err != nil {
		return fmt.Errorf("read what to build from %s: run this from the root of the checkout or from hack/cluster: %w", s.SourceDir, err)
	}
	printed, err := perform(ctx, cluster.New(s, cache, os.Stderr), command, args)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, printed)
	return err
}

// perform runs a command that needs the cache and returns its output.
func perform(ctx context.Context, c *cluster.Cluster, command string, args []string) (string, error) {
	switch command {
	case "assets":
		return c.BuildAssets(ctx)
	case "program":
		if all := c.Programs(); !slices.Contains(all, args[0]) {
			return "", fmt.Errorf("%w: there is no program %q: there are %s", errUsage, args[0], strings.Join(all, ", "))
		}
		return c.BuildProgram(ctx, args[0])
	}
	if kubeconfig := os.Getenv("KUBECONFIG"); kubeconfig != "" && kubeconfig != c.Kubeconfig() {
		return external(ctx, c, command, kubeconfig)
	}
	switch command {
	case "up":
		return c.Environment(), c.Up(ctx)
	case "demo":
		return c.Environment(), c.Demo(ctx, args)
	case "metrics":
		return "", c.RunMetrics(ctx)
	case "kueue", "keda", "prometheus":
		return "", c.RunNeighbour(ctx, command)
	case "status":
		return "", c.Status(ctx)
	case "node stop":
		return "", c.StopNode(ctx, args[0])
	case "node start":
		return "", c.StartNode(ctx, args[0])
	case "load-image":
		return "", c.LoadImages(ctx, args...)
	}
	return c.Environment(), nil
}

// external runs a command for the cluster of another kubeconfig.
func external(ctx context.Context, c *cluster.Cluster, command, kubeconfig string) (string, error) {
	switch command {
	case "env":
	case "up", "status":
		kubectl, err := exec.LookPath("kubectl")
		if err != nil {
			if kubectl, err = c.BuildProgram(ctx, build.Kubectl); err != nil {
				return "", err
			}
		}
		version, err := exec.CommandContext(ctx, strings.TrimSpace(kubectl), "--kubeconfig="+kubeconfig, "--request-timeout=15s", "version").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("the cluster of kubeconfig %s does not answer: %w: %s", kubeconfig, err, version)
		}
		fmt.Fprintf(os.Stderr, "using the cluster of kubeconfig %s\n%s", kubeconfig, version)
	default:
		return "", errExternal
	}
	return "export KUBECONFIG=" + filepath.Clean(kubeconfig) + "\n", nil
}
