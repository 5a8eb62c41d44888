// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster is what kubectl di asks of the API server on behalf of who
// runs it: jobs and what belongs to them, a token that di-server knows a pod
// by, and a way to di-server.
package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/terminal"
)

// Flags are kubectl's flags that say which cluster, as whom, and in which
// namespace. All of them are there but --server, which is di-server's URL in
// kubectl di, and --cache-dir, as nothing is discovered.
type Flags struct {
	config *genericclioptions.ConfigFlags
	errOut io.Writer
}

// NewFlags returns the flags, which all commands share. What the API server
// warns of goes to the streams.
func NewFlags(streams genericiooptions.IOStreams) *Flags {
	config := genericclioptions.NewConfigFlags(true)
	config.APIServer, config.CacheDir = nil, nil
	return &Flags{config: config, errOut: streams.ErrOut}
}

// Bind adds the flags to a command's.
func (f *Flags) Bind(flags *pflag.FlagSet) { f.config.AddFlags(flags) }

// HasNamespace reports whether the namespace is said by a flag.
func (f *Flags) HasNamespace() bool { return *f.config.Namespace != "" }

// Cluster is a cluster as one user may use it.
type Cluster struct {
	// Namespace is the namespace that the user works in.
	Namespace string
	client    client.WithWatch
	config    *rest.Config
}

// Connect returns the cluster that the flags, and what kubectl reads beside
// them, lead to. It makes no call yet.
func (f *Flags) Connect() (*Cluster, error) {
	kubeconfig := f.config.ToRawKubeConfigLoader()
	config, err := f.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if raw, err := kubeconfig.RawConfig(); err == nil && len(raw.Clusters) == 0 && config.Host == clientcmd.ClusterDefaults.Server {
		return nil, errors.New("no kubeconfig says which cluster: name one by --kubeconfig, by KUBECONFIG, or in ~/.kube/config")
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the kubeconfig: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return terminal.TellSlow(f.errOut, next) })
	config.WarningHandler = rest.NewWarningWriter(f.errOut, rest.WarningWriterOptions{Deduplicate: true})
	return New(config, namespace)
}

// New returns the cluster that a configuration leads to.
func New(config *rest.Config, namespace string) (*Cluster, error) {
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		v2alpha1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	// The kinds are known, so no discovery is needed.
	for _, kind := range []string{"Pod", "Service", "ServiceAccount", "Event", "ConfigMap", "Secret"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"DIJob", "Membership"} {
		mapper.Add(v2alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(v1alpha1.GroupVersion.WithKind("DIJob"), meta.RESTScopeNamespace)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	for _, kind := range publishedPlaces() {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	// Without a logger the client complains, at length, when it gets old.
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper, Log: klog.Background()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Cluster{Namespace: namespace, client: api, config: config}, nil
}

// Client returns a client of pods, services, service accounts, events,
// deployments, DIJobs and Memberships.
func (c *Cluster) Client() client.WithWatch { return c.client }

// Config returns how the API server is reached.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }
