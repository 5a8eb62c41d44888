// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster is what kubectl di asks of the API server on behalf of who
// runs it: a job, a token that di-server knows its pod by, and a way to
// di-server. It must not change a job.
package cluster

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Flags are those of kubectl's flags that say which cluster, as whom, and in
// which namespace.
type Flags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// Bind adds the flags to a command's.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	known := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&f.overrides, flags, clientcmd.ConfigOverrideFlags{
		ContextOverrideFlags: known.ContextOverrideFlags,
		CurrentContext:       known.CurrentContext,
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate: known.AuthOverrideFlags.Impersonate, ImpersonateGroups: known.AuthOverrideFlags.ImpersonateGroups,
		},
	})
	flags.StringVar(&f.kubeconfig, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file to use for CLI requests")
}

// Cluster is a cluster as one user may use it.
type Cluster struct {
	// Namespace is the namespace that the user works in.
	Namespace string
	client    client.Client
	config    *rest.Config
}

// Connect returns the cluster that the flags, and what kubectl reads beside
// them, lead to. It calls nobody yet.
func (f *Flags) Connect() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the kubeconfig: %w", err)
	}
	return New(config, namespace)
}

// New returns the cluster that a configuration leads to.
func New(config *rest.Config, namespace string) (*Cluster, error) {
	scheme := runtime.NewScheme()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, v2alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	// What there is is known, so that nobody needs to be asked.
	for _, kind := range []string{"Pod", "Service", "ServiceAccount"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(v2alpha1.GroupVersion.WithKind("DIJob"), meta.RESTScopeNamespace)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	// Without a logger the client complains, at length, when it gets old.
	api, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, Log: klog.Background()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Cluster{Namespace: namespace, client: api, config: config}, nil
}
