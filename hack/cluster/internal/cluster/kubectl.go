// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// waitRound is how long kubectl waits before it is called again, and therefore the maximum age of
// the reason in an error.
const waitRound = 20 * time.Second

// kubectl runs kubectl as the cluster's administrator.
func (c *Cluster) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	// Each call discovers the server's APIs again because a cache would outlive the cluster.
	args = append([]string{"--kubeconfig=" + c.Kubeconfig(), "--cache-dir=" + c.settings.State("tmp", "kubectl")}, args...)
	return run(ctx, input, c.cache.Path(build.Kubectl), args...)
}

// await waits with kubectl for a state of objects.
func (c *Cluster) await(ctx context.Context, state string, objects ...string) error {
	_, err := c.kubectlUntilDone(ctx, append([]string{"wait", state, "--timeout=" + waitRound.String()}, objects...)...)
	return err
}

// kubectlUntilDone retries an idempotent command because an API server that is busy or has just
// started may not answer each call.
func (c *Cluster) kubectlUntilDone(ctx context.Context, args ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	err = process.Until(ctx, func(ctx context.Context) (bool, error) {
		if output, err = c.kubectl(ctx, "", args...); err != nil {
			return false, process.Retryable(err)
		}
		return true, nil
	})
	return output, err
}

// ctr runs the client of a node's containerd for the images and containers of
// Kubernetes.
func (c *Cluster) ctr(ctx context.Context, node settings.Node, args ...string) (string, error) {
	args = append([]string{"--address", node.ContainerdSocket(), "--namespace", "k8s.io"}, args...)
	return run(ctx, "", c.cache.Path(build.Ctr), args...)
}

func run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd.String(), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
