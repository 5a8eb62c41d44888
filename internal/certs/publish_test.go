// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAReplicaThatPublishesAtTheSameTimeIsNoFailure(t *testing.T) {
	t.Parallel()
	raced := false
	api := fake.NewClientBuilder().WithObjects(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "w", ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "di-system", Name: "s"},
		}}},
	}).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if !raced {
				raced = true
				return apierrors.NewConflict(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, object.GetName(), nil)
			}
			return api.Update(ctx, object, options...)
		},
	}).Build()

	publication := Publication{Endpoint: Endpoint{URL: "https://a:1"}}
	place := configuration("MutatingWebhookConfiguration", "c", map[string]string{"w": "/p"})
	expect.NoError(t, publication.publish(t.Context(), api, &Trust{Bundle: []byte("bundle")}, place, &Outcome{}))
	got := &admissionregistrationv1.MutatingWebhookConfiguration{}
	expect.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "c"}, got))
	want := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://a:1/p"), CABundle: []byte("bundle")}
	expect.Equal(t, "client configuration", want, got.Webhooks[0].ClientConfig)
	if !raced {
		t.Error("nothing was updated, so nothing was raced for")
	}
}

func TestABundleThatAnotherReplicaPublishesAtTheSameTimeIsNotLost(t *testing.T) {
	t.Parallel()
	clk := newClock()
	mine, theirs := load(t, fake.NewFakeClient(), clk).Bundle(), load(t, fake.NewFakeClient(), clk).Bundle()
	place := configuration("MutatingWebhookConfiguration", "c", map[string]string{"w": "/p"})
	publication := Publication{Endpoint: Endpoint{Namespace: "di-system", Service: "s", Port: 443}}
	raced := false
	api := fake.NewClientBuilder().WithObjects(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "w", ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "di-system", Name: "s"},
		}}},
	}).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, api client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if !raced {
				raced = true
				if err := publication.publish(ctx, api, &Trust{Bundle: theirs, KeepOthers: true, Now: clk.Now()}, place, &Outcome{}); err != nil {
					return err
				}
			}
			return api.Apply(ctx, object, options...)
		},
	}).Build()

	expect.NoError(t, publication.publish(t.Context(), api, &Trust{Bundle: mine, KeepOthers: true, Now: clk.Now()}, place, &Outcome{}))
	got := &admissionregistrationv1.MutatingWebhookConfiguration{}
	expect.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "c"}, got))
	if bundle := got.Webhooks[0].ClientConfig.CABundle; !bytes.Contains(bundle, mine) || !bytes.Contains(bundle, theirs) {
		t.Errorf("published is\n%s\nwant both\n%s\nand\n%s", bundle, mine, theirs)
	}
}

func TestWhoResetAFieldIsToldFromWhoCreatedItWithinTheSameSecond(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	wrote := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &now, FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	// The API server writes a struct that is owned alone in both forms.
	for _, alone := range []string{`{".":{}}`, `{}`} {
		definition := &unstructured.Unstructured{Object: map[string]any{}}
		// The API server sorts entries in this order.
		definition.SetManagedFields([]metav1.ManagedFieldsEntry{
			wrote(string(fieldManager), `{"f:spec":{"f:conversion":{"f:webhook":{".":{}}}}}`),
			wrote("gitops", `{"f:spec":{"f:conversion":{"f:strategy":{}}}}`),
			wrote("installer", `{"f:spec":{"f:conversion":`+alone+`,"f:group":{}}}`),
		})
		if got := managerOf(definition, "conversion"); got != "gitops" {
			t.Errorf("got %q where the installer owns %s", got, alone)
		}
	}
}
