// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo runs the demonstration on the cluster of the kubeconfig.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"golang.org/x/term"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"opendilab.org/di-orchestrator/test/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard())
	cluster, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return fmt.Errorf("finding kubectl: %w", err)
	}
	helm, err := exec.LookPath("helm")
	if err != nil {
		return fmt.Errorf("finding helm: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the checkout: %w", err)
	}
	d, err := demo.New(demo.Options{
		Config:   cluster,
		Kubectl:  kubectl,
		Helm:     helm,
		Root:     root,
		History:  true,
		Out:      os.Stdout,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())),
	})
	if err != nil {
		return err
	}
	if _, err := d.Run(ctx); err != nil {
		return err
	}
	fmt.Print(`
All jobs have succeeded. The cluster is still up. To look around:
  eval "$(make -s cluster-env)"
  kubectl get dijobs.v1alpha1.diengine.opendilab.org
  kubectl get dijobs.v2alpha1.diengine.opendilab.org
  kubectl di top cartpole-workers
  kubectl di ui --open
To take it down and remove all that it made:
  make demo-down
`)
	return nil
}
