// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
	if err := publication.publish(t.Context(), api, []byte("bundle"), place); err != nil {
		t.Fatal(err)
	}
	got := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "c"}, got); err != nil {
		t.Fatal(err)
	}
	want := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://a:1/p"), CABundle: []byte("bundle")}
	if diff := cmp.Diff(want, got.Webhooks[0].ClientConfig); diff != "" {
		t.Errorf("client configuration (-want +got):\n%s", diff)
	}
	if !raced {
		t.Error("nothing was updated, so nothing was raced for")
	}
}
