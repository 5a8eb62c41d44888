// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package launcher tests that DI-engine's OrchestratorLauncher installs config/di-manager.yaml: it
// runs the same kubectl commands and applies the same rules to what they print, on a real API server.
package launcher

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// namespace and webhook are those that the launcher waits in, and for.
const (
	namespace = "di-system"
	webhook   = "di-webhook"
	// patience is how long it waits.
	patience = 120 * time.Second
)

// kubectl runs the assets' kubectl, as the launcher does, and returns its standard error, trimmed.
// Like the launcher, it does not look at the exit code.
func kubectl(ctx context.Context, t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv(testkit.AssetsVariable), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if err := command.Run(); err != nil && stderr.Len() == 0 {
		t.Fatal(err)
	}
	return strings.TrimSpace(stderr.String())
}

// created is the launcher's rule for kubectl create.
func created(stderr string) error {
	if stderr != "" && !strings.Contains(stderr, "WARN") && !strings.Contains(stderr, "already exists") {
		return fmt.Errorf("failed to launch components: %s", stderr)
	}
	return nil
}

// deleted is the launcher's rule for kubectl delete.
func deleted(stderr string) error {
	if stderr != "" && !strings.Contains(stderr, "WARN") && !strings.Contains(stderr, "NotFound") {
		return fmt.Errorf("failed to delete di-orchestrator: %s", stderr)
	}
	return nil
}

// isReady is the launcher's rule for what it waits for.
func isReady(deployment *appsv1.Deployment) bool {
	return strings.HasPrefix(deployment.Name, webhook) && deployment.Status.ReadyReplicas >= 1
}

func start(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	environment := &envtest.Environment{}
	config, err := environment.Start()
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, os.WriteFile(kubeconfig, environment.KubeConfig, 0o600))
	api, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	return api, kubeconfig
}

func TestDIEngineInstallsItsManifestFindsTheWebhooksAndDeletesIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	api, kubeconfig := start(t)
	manifest := filepath.Join(testkit.Root(), "config", "di-manager.yaml")

	expect.NoError(t, created(kubectl(ctx, t, kubeconfig, "create", "-f", manifest)))
	watched, err := api.AppsV1().Deployments(namespace).Watch(ctx, metav1.ListOptions{})
	expect.NoError(t, err)
	defer watched.Stop()
	deployments, err := api.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(deployments.Items) != 3 {
		t.Fatalf("%d Deployments: %v", len(deployments.Items), err)
	}
	// No kubelet runs here: all programs become ready, as the controllers of a cluster report it.
	for i := range deployments.Items {
		ready := &deployments.Items[i]
		ready.Status.Replicas, ready.Status.ReadyReplicas = 2, 2
		if _, err := api.AppsV1().Deployments(namespace).UpdateStatus(ctx, ready, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for found := false; !found; {
		select {
		case event := <-watched.ResultChan():
			deployment, isDeployment := event.Object.(*appsv1.Deployment)
			found = isDeployment && isReady(deployment)
		case <-ctx.Done():
			t.Fatal("the launcher finds no ready Deployment of webhooks")
		}
	}

	again := kubectl(ctx, t, kubeconfig, "create", "-f", manifest)
	if err := created(again); err != nil || !strings.Contains(again, "already exists") {
		t.Errorf("a second launch: %v, %s", err, again)
	}
	// Nothing here finishes the deletion of a namespace.
	if err := deleted(kubectl(ctx, t, kubeconfig, "delete", "--wait=false", "-f", manifest)); err != nil {
		t.Error(err)
	}
}

func TestNoDeploymentForDIEngineHasTheNameOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "di-manager.yaml"))
	expect.NoError(t, err)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if strings.Contains(document, "kind: Deployment\n") && strings.Contains(document, "\n  name: di-webhook\n") {
			t.Error("Deployment di-webhook is taken for that of an earlier release: preflight and takeover stop it")
		}
	}
}
