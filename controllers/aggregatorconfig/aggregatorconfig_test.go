// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregatorconfig

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// start runs the creation in a cluster with these objects until it succeeds. It returns the image in the
// stored template.
func start(t *testing.T, objects ...client.Object) string {
	t.Helper()
	scheme := runtime.NewScheme()
	expect.NoError(t, clientgoscheme.AddToScheme(scheme))
	expect.NoError(t, v2alpha1.AddToScheme(scheme))
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	creator := &Default{
		Client: api, Reader: api, Log: logr.Discard(),
		Template: client.ObjectKey{Namespace: "n", Name: "template"}, Config: client.ObjectKey{Namespace: "n", Name: "config"},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	expect.NoError(t, creator.Start(ctx))
	config := &v2alpha1.AggregatorConfig{}
	if client.IgnoreNotFound(api.Get(t.Context(), creator.Config, config)) != nil {
		t.Fatal("cannot read the AggregatorConfig")
	}
	template := &corev1.PodTemplateSpec{}
	expect.NoError(t, yaml.Unmarshal(config.Spec.Aggregator.Template.Raw, template))
	if len(template.Spec.Containers) == 0 {
		return ""
	}
	return template.Spec.Containers[0].Image
}

func TestTheDefaultIsCreatedFromTheTemplateIfThereIsNone(t *testing.T) {
	t.Parallel()
	// The client writes into its objects, so no two tests share one.
	template := func() client.Object {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "template"},
			Data:       map[string]string{TemplateKey: "spec:\n  containers:\n  - {name: di-container, image: default}\n"},
		}
	}
	existing := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "config"}}
	existing.Spec.Aggregator.Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"own"}]}}`)
	for name, tc := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"none exists":             {[]client.Object{template()}, "default"},
		"one exists":              {[]client.Object{template(), existing}, "own"},
		"the template is missing": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := start(t, tc.objects...); got != tc.want {
				t.Errorf("image %q, want %q", got, tc.want)
			}
		})
	}
}
