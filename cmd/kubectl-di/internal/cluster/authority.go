// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/internal/names"
)

// publishedPlaces are the objects that tell the API server whom to trust.
func publishedPlaces() map[string]schema.GroupVersionKind {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return map[string]schema.GroupVersionKind{
		names.DIJobDefinition:    {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		names.MutatingWebhooks:   admission.WithKind("MutatingWebhookConfiguration"),
		names.ValidatingWebhooks: admission.WithKind("ValidatingWebhookConfiguration"),
	}
}

// Authority is the certificate authority of the webhooks as it is kept.
type Authority struct {
	// Certificate is that of the authority, as PEM.
	Certificate []byte
	// Replicas are the operators that have told by which authority they serve.
	Replicas []record.Replica
}

// Authority reads the authority that the operators of a namespace keep.
func (c *Cluster) Authority(ctx context.Context, namespace string, now time.Time) (*Authority, error) {
	var secret corev1.Secret
	name := types.NamespacedName{Namespace: namespace, Name: names.WebhookAuthority}
	err := c.client.Get(ctx, name, &secret)
	if apierrors.IsNotFound(err) {
		return &Authority{}, nil
	}
	if err != nil {
		need := Right{Verb: "get,patch", Resource: "secrets", Namespace: namespace, Name: name.Name}
		return nil, need.Denied("reading Secret "+name.String(), err)
	}
	return &Authority{Certificate: secret.Data[corev1.TLSCertKey], Replicas: record.Replicas(&secret, now)}, nil
}

// AskAuthority asks the operators of a namespace for another authority.
func (c *Cluster) AskAuthority(ctx context.Context, namespace string, now time.Time) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.WebhookAuthority}}
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, record.AnnotationRotate, now.UTC().Format(time.RFC3339Nano)))
	if err := c.client.Patch(ctx, secret, patch); err != nil {
		need := Right{Verb: "get,patch", Resource: "secrets", Namespace: namespace, Name: secret.Name}
		return need.Denied("asking for another authority by Secret "+namespace+"/"+secret.Name, err)
	}
	return nil
}

// Trusting counts the client configurations of the webhooks, and those of them
// in which a certificate is trusted.
func (c *Cluster) Trusting(ctx context.Context, certificate []byte) (trusting, places int, err error) {
	for name, kind := range publishedPlaces() {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return 0, 0, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
		}
		for _, bundle := range bundlesOf(object) {
			places++
			if bytes.Contains(bundle, bytes.TrimSpace(certificate)) {
				trusting++
			}
		}
	}
	return trusting, places, nil
}

// bundlesOf returns whom the API server is to trust, by each client
// configuration of an object.
func bundlesOf(object *unstructured.Unstructured) [][]byte {
	var bundles [][]byte
	add := func(of map[string]any, path ...string) {
		encoded, _, _ := unstructured.NestedString(of, append(path, "clientConfig", "caBundle")...)
		// What does not decode is no bundle.
		bundle, _ := base64.StdEncoding.DecodeString(encoded)
		bundles = append(bundles, bundle)
	}
	webhooks, listed, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, item := range webhooks {
		if config, ok := item.(map[string]any); ok {
			add(config)
		}
	}
	if !listed {
		add(object.Object, "spec", "conversion", "webhook")
	}
	return bundles
}
