// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts the API server of a benchmark and counts the requests of each user. It crashes and hangs
// the API server, another one of the same etcd, and etcd.
package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/etcd"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// OperatorLease is the Lease of the operators' leader.
const OperatorLease = "di-orchestrator-operator"

// auditPolicy logs the requests of some users, and the contents of patches of a job's
// status.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: [%[1]s]
  verbs: [patch]
  resources: [{group: ` + v2alpha1.GroupName + `, resources: [dijobs/status]}]
- level: Metadata
  users: [%[1]s]
- level: None
`

// Options configure a Plane.
type Options struct {
	// Folder is the folder of the configuration and the audit log.
	Folder string
	// Users are the users whose requests are counted.
	Users []string
	// Etcd and APIServer are additional flags of etcd and the API server, by name.
	Etcd, APIServer map[string]string
	// Bare leaves out the CRDs.
	Bare bool
	// Early makes the certificates of the API server valid an hour earlier, for clients whose clock is behind.
	Early bool
}

// Plane is a kube-apiserver with an audit log, and its etcd.
type Plane struct {
	// API has no rate limit.
	API client.WithWatch

	environment *envtest.Environment
	scheme      *runtime.Scheme
	folder      string
	users       []string
	// other is the address of the other API server; "" without one.
	other string
	// discovery has a client of each API server.
	discovery []discovery.DiscoveryInterface
	// started are the processes that replaced those of the environment, or that were added, by name.
	started map[string]*program.Process
}

// Start starts an API server with the CRDs, unless Bare is set, and without webhooks.
// The caller stops it.
func Start(options *Options) (*Plane, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v2alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	folder, err := os.MkdirTemp(options.Folder, "plane-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	p := &Plane{folder: folder, scheme: scheme, users: options.Users, environment: &envtest.Environment{}, started: map[string]*program.Process{}}
	if !options.Bare {
		p.environment.CRDDirectoryPaths = []string{filepath.Join(testkit.Root(), "config", "crd", "bases")}
		p.environment.ErrorIfCRDPathMissing = true
	}
	policy := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, strings.Join(options.Users, ", ")), 0o600); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	p.environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).Set("audit-log-path", p.auditLog()).
		// A log that rotates, after 100 MB by default, would lose requests that are counted.
		Set("audit-log-maxsize", "100000").
		// Deleting all objects is not part of the measurement.
		Set("delete-collection-workers", "16")
	for name, value := range options.APIServer {
		p.environment.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	p.environment.ControlPlane.Etcd = &envtest.Etcd{}
	for name, value := range options.Etcd {
		p.environment.ControlPlane.Etcd.Configure().Set(name, value)
	}
	if options.Early {
		if err := p.issueEarly(); err != nil {
			return nil, err
		}
	}
	if err := testkit.Start(p.environment); err != nil {
		return nil, err
	}
	if p.API, err = p.Client(p.environment.Config, -1, 0); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	first, err := discovery.NewDiscoveryClientForConfig(p.environment.Config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("client: %w", err), p.Stop())
	}
	p.discovery = append(p.discovery, first)
	return p, nil
}

// issueEarly issues the certificate of the API server. An environment would issue one that is valid from now on.
func (p *Plane) issueEarly() error {
	certificate, key, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{Host: "127.0.0.1"})
	if err != nil {
		return fmt.Errorf("issuing the API server's certificate: %w", err)
	}
	api := p.environment.ControlPlane.GetAPIServer()
	api.CertDir, api.CA = p.folder, certificate
	// The same key signs the tokens of service accounts.
	for _, name := range []string{"apiserver", "sa-signer"} {
		if err := errors.Join(os.WriteFile(filepath.Join(p.folder, name+".crt"), certificate, 0o600), os.WriteFile(filepath.Join(p.folder, name+".key"), key, 0o600)); err != nil {
			return fmt.Errorf("writing the API server's certificate: %w", err)
		}
	}
	return nil
}

// Stop stops the API server and etcd.
func (p *Plane) Stop() error {
	err := p.environment.Stop()
	for _, started := range p.started {
		err = errors.Join(err, started.Kill())
	}
	return err
}

// Etcd returns the store of the API server.
func (p *Plane) Etcd() etcd.Store {
	return etcd.Store{URL: p.environment.ControlPlane.Etcd.URL}
}

func (p *Plane) auditLog() string {
	return filepath.Join(p.folder, "audit.log")
}

// Config returns the configuration of an administrator, whose requests are not counted.
func (p *Plane) Config() *rest.Config {
	return rest.CopyConfig(p.environment.Config)
}

// Client returns a client without a cache. The rate limit applies to each kind separately, as in
// the operator.
func (p *Plane) Client(config *rest.Config, qps float32, burst int) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.WarningHandler = qps, burst, rest.NoWarnings{}
	api, err := client.NewWithWatch(config, client.Options{Scheme: p.scheme})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return api, nil
}

// User adds a user with all permissions.
func (p *Plane) User(name string) (*envtest.AuthenticatedUser, error) {
	user, err := p.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("adding user %s: %w", name, err)
	}
	return user, nil
}

// Kubeconfig returns the environment with which a process authenticates as a user.
func (p *Plane) Kubeconfig(name string) (string, error) {
	return p.KubeconfigAt(name, p.APIAddress())
}

// KubeconfigAt is Kubeconfig for a process that reaches the API server at another address, such as that of a proxy.
func (p *Plane) KubeconfigAt(name, address string) (string, error) {
	user, err := p.User(name)
	if err != nil {
		return "", err
	}
	return p.writeKubeconfig(name, user, address)
}

// AccountKubeconfigAt is AccountKubeconfig for a process that reaches the API server at another address, such as
// that of a proxy. The name distinguishes processes of one program.
func (p *Plane) AccountKubeconfigAt(program, name, address string) (string, error) {
	user, err := testkit.Account(p.environment, program)
	if err != nil {
		return "", err
	}
	return p.writeKubeconfig(name, user, address)
}

// APIAddress returns the address of the API server.
func (p *Plane) APIAddress() string {
	return strings.Trim(strings.TrimPrefix(p.environment.Config.Host, "https:"), "/")
}

// APIAddresses returns the addresses of the API server and of the other one.
func (p *Plane) APIAddresses() []string { return []string{p.APIAddress(), p.other} }

// InstallRights creates the roles and policies of the installation. A process that uses the environment of
// AccountKubeconfig has the permissions of a program.
func (p *Plane) InstallRights(ctx context.Context) error {
	return testkit.Install(ctx, p.environment.Config)
}

// AccountKubeconfig returns the environment with which a process authenticates as the service account of a
// program.
func (p *Plane) AccountKubeconfig(program string) (string, error) {
	user, err := testkit.Account(p.environment, program)
	if err != nil {
		return "", err
	}
	return p.writeKubeconfig(program, user, p.APIAddress())
}

func (p *Plane) writeKubeconfig(name string, user *envtest.AuthenticatedUser, address string) (string, error) {
	content, err := user.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	own := strings.TrimSuffix(user.Config().Host, "/")
	return p.writeFile(name, bytes.ReplaceAll(content, []byte(own), []byte("https://"+address)))
}

func (p *Plane) writeFile(name string, content []byte) (string, error) {
	path := filepath.Join(p.folder, name+".kubeconfig")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", name, err)
	}
	return "KUBECONFIG=" + path, nil
}

// InstallWebhooks creates the system namespace, if it does not exist, and the webhook
// configurations as deployed. An operator writes its own address into them.
func (p *Plane) InstallWebhooks(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}}
	if err := p.API.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
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
		if err := p.API.Create(ctx, object); err != nil {
			return fmt.Errorf("creating the object of %s: %w", file, err)
		}
	}
	return nil
}
