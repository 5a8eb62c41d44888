// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster contains the calls that kubectl di makes to the API server on behalf of its user.
// They read and change jobs and their dependents, request a token for di-server, and forward a port
// to di-server.
package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/podmetrics"
)

// Cluster is the connection of one user to a cluster.
type Cluster struct {
	// Namespace is the namespace of the commands.
	Namespace string
	client    client.WithWatch
	config    *rest.Config
}

// New returns the cluster of a configuration. It makes no call: it registers the kinds that the
// commands use, so that no discovery is needed.
func New(config *rest.Config, namespace string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	// The API server limits its clients itself. A client's own limit fails a call that would
	// wait beyond a deadline before the deadline has passed.
	config.QPS = -1
	warn := config.WarningHandler
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &retrier{next: next, warn: warn} })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		v1alpha1.AddToScheme, v2alpha1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	mapper.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	metrics := podmetrics.NodeKind()
	mapper.AddSpecific(metrics, metrics.GroupVersion().WithResource("nodes"), metrics.GroupVersion().WithResource("node"), meta.RESTScopeRoot)
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		mapper.Add(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}, meta.RESTScopeRoot)
	}
	// Without a logger the client logs a stack trace after 30 seconds.
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper, Log: klog.Background()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &Cluster{Namespace: namespace, client: api, config: config}, nil
}

// Config returns the client configuration of the API server.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Get reads an object; the namespace is empty for cluster-scoped kinds.
func (c *Cluster) Get(ctx context.Context, namespace, name string, object client.Object) error {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	return explain("reading "+c.kind(object)+" "+strings.TrimPrefix(key.String(), "/"), c.client.Get(ctx, key, object))
}

// List lists objects.
func (c *Cluster) List(ctx context.Context, namespace string, list client.ObjectList, options ...client.ListOption) error {
	place := " of all namespaces"
	if namespace != "" {
		place = " of namespace " + namespace
	}
	err := c.client.List(ctx, list, append(options, client.InNamespace(namespace))...)
	return explain("listing the "+strings.TrimSuffix(c.kind(list), "list")+"s"+place, err)
}

// Patch merges a change into an object, and updates the object from the response.
func (c *Cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	title := c.kind(object) + " " + strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")
	return explain("changing "+title, c.client.Patch(ctx, object, patch, options...))
}

// kind returns the user-facing name of an object's kind.
func (c *Cluster) kind(object runtime.Object) string {
	gvk, err := apiutil.GVKForObject(object, c.client.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", object) // Only a kind that New does not register.
	}
	return strings.ToLower(strings.TrimPrefix(gvk.Kind, "DI"))
}
