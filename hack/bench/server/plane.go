// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit"
)

// The users whose requests are counted.
const (
	userServer   = "bench-server"
	userOperator = "bench-operator"
	userPlain    = "bench-plain"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [` + userServer + `, ` + userOperator + `, ` + userPlain + `]
- level: None
`

// plane is a kube-apiserver and etcd of which the audit log tells who asked what.
type plane struct {
	environment *envtest.Environment
	// api writes without a limit on its rate.
	api    client.WithWatch
	scheme *runtime.Scheme
	folder string
}

// startPlane starts an API server with the CRDs and without webhooks. The
// caller stops it.
func startPlane(folder string) (*plane, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v2alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	folder, err := os.MkdirTemp(folder, "plane-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	p := &plane{folder: folder, scheme: scheme, environment: &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(testkit.Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}}
	policy := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	p.environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).Set("audit-log-path", p.auditLog())
	if _, err := p.environment.Start(); err != nil {
		return nil, fmt.Errorf("starting kube-apiserver and etcd (KUBEBUILDER_ASSETS=%s): %w", os.Getenv(testkit.AssetsVariable), err)
	}
	if p.api, err = p.client(rest.CopyConfig(p.environment.Config), -1, 0); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *plane) stop() error {
	return p.environment.Stop()
}

func (p *plane) auditLog() string {
	return filepath.Join(p.folder, "audit.log")
}

// client returns a client without a cache.
func (p *plane) client(config *rest.Config, qps float32, burst int) (client.WithWatch, error) {
	config.QPS, config.Burst, config.WarningHandler = qps, burst, rest.NoWarnings{}
	api, err := client.NewWithWatch(config, client.Options{Scheme: p.scheme})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return api, nil
}

// user adds a user, who may do everything.
func (p *plane) user(name string) (*envtest.AuthenticatedUser, error) {
	user, err := p.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding user %s: %w", name, err)
	}
	return user, nil
}

// kubeconfig returns the environment by which a process is a user.
func (p *plane) kubeconfig(name string) (string, error) {
	user, err := p.user(name)
	if err != nil {
		return "", err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	path := filepath.Join(p.folder, name+".kubeconfig")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", name, err)
	}
	return "KUBECONFIG=" + path, nil
}

// installWebhooks creates the system namespace and the webhook configurations
// as they are deployed; an operator puts its own address into them.
func (p *plane) installWebhooks(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}}
	if err := p.api.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating the system namespace: %w", err)
	}
	for _, file := range []string{"service.yaml", "mutating.yaml", "validating.yaml"} {
		raw, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "webhook", file))
		if err != nil {
			return fmt.Errorf("reading a manifest: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &object.Object); err != nil {
			return fmt.Errorf("decoding %s: %w", file, err)
		}
		if err := p.api.Create(ctx, object); err != nil {
			return fmt.Errorf("creating what %s holds: %w", file, err)
		}
	}
	return nil
}
