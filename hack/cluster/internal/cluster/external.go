// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/progress"
)

// External is a cluster somebody else made, named by a kubeconfig.
type External struct {
	kubeconfig string
	cache      *build.Cache
	out        io.Writer
}

// NewExternal returns the cluster of a kubeconfig.
func NewExternal(kubeconfig string, cache *build.Cache, out io.Writer) *External {
	return &External{kubeconfig: kubeconfig, cache: cache, out: out}
}

// Check reports whether the cluster answers.
func (e *External) Check(ctx context.Context) error {
	kubectl, err := e.kubectl(ctx)
	if err != nil {
		return err
	}
	version, err := run(ctx, "", kubectl, "--kubeconfig="+e.kubeconfig, "--request-timeout=15s", "version")
	if err != nil {
		return fmt.Errorf("the cluster of kubeconfig %s does not answer: %w", e.kubeconfig, err)
	}
	_, _ = fmt.Fprintf(e.out, "using the cluster of kubeconfig %s\n%s", e.kubeconfig, version)
	return nil
}

// kubectl is the one of this machine; where there is none it is built.
func (e *External) kubectl(ctx context.Context) (string, error) {
	if found, err := exec.LookPath("kubectl"); err == nil {
		return found, nil
	}
	unlock, err := build.Lock(e.cache.Dir(), func() { _, _ = fmt.Fprintln(e.out, "waiting for another run that uses the cache") })
	if err != nil {
		return "", err
	}
	err = progress.NewRunner(e.out, reportEvery).Run(ctx, e.cache.Steps(build.Kubectl))
	return e.cache.Path(build.Kubectl), errors.Join(err, unlock())
}

// Environment are the shell commands with which a terminal uses the cluster.
func (e *External) Environment() string {
	return fmt.Sprintf("export KUBECONFIG=%s\n", e.kubeconfig)
}
