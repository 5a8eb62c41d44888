// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

func TestReplacingTheAuthorityIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	api, err := webhooks.StartAPIWithWebhooks(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, api.Stop()) })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(kubeconfig, api.KubeConfig, 0o600))

	got := kubectlDI(t, "", "rotate-ca", "--kubeconfig", kubeconfig, "--wait")
	if got.code != exit.Done || !strings.HasSuffix(got.stderr, "certificate authority: all 1 operators serve by it; the old one is dropped\n") {
		t.Errorf("got %+v", got)
	}
	if err := webhooks.WaitCalled(t.Context(), api.Config); err != nil {
		t.Error(err)
	}

	got = kubectlDI(t, "", "rotate-ca", "--kubeconfig", kubeconfig, "--timeout", "1ms")
	if got.code != exit.Failed || !strings.Contains(got.stderr, "it goes on by itself") {
		t.Errorf("got %+v", got)
	}

	got = kubectlDI(t, "", "rotate-ca", "--kubeconfig", kubeconfig, "--server-namespace", "elsewhere")
	if got.code != exit.Failed || !strings.Contains(got.stderr, "no operator of namespace elsewhere serves by an authority of its own") ||
		!strings.Contains(got.stderr, "--webhook-certificates=secret") {
		t.Errorf("got %+v", got)
	}
}
