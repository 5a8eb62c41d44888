// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("The creator of a job", func() {
	const annotation = "diengine/creator"
	as := func(user string) client.Client {
		GinkgoHelper()
		config := rest.CopyConfig(api.Config)
		config.QPS = -1
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		of, err := client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		return of
	}
	const (
		v1 = `spec: {coordinator: {template: {spec: {containers: [{name: di-container, image: one}]}}}}`
		v2 = `spec: {tasks: [{type: learner, template: {spec: {containers: [{name: di-container, image: one}]}}}]}`
	)
	patch := func(ctx context.Context, by client.Client, of *unstructured.Unstructured, merge string) error {
		return by.Patch(ctx, of.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(merge)))
	}
	for version, manifest := range map[string]string{"v1alpha1": v1, "v2alpha1": v2} {
		It("is who the API server authenticated, not who a manifest of "+version+" says, and stays", func(ctx SpecContext) {
			namespace := specs.Namespace(ctx, c)
			plain := specs.Job(version, namespace, "plain", manifest)
			Expect(as("alice@example.com").Create(ctx, plain)).To(Succeed())
			Expect(plain.GetAnnotations()).To(HaveKeyWithValue(annotation, "alice@example.com"))

			forged := specs.Job(version, namespace, "forged", manifest)
			forged.SetAnnotations(map[string]string{annotation: "alice@example.com", "own": "kept"})
			Expect(as("mallory").Create(ctx, forged)).To(Succeed())
			Expect(forged.GetAnnotations()).To(Equal(map[string]string{annotation: "mallory", "own": "kept"}))

			for _, merge := range []string{
				`{"metadata":{"annotations":{"diengine/creator":"mallory"}}}`,
				`{"metadata":{"annotations":{"diengine/creator":null}}}`,
				`{"metadata":{"annotations":null}}`,
			} {
				Expect(patch(ctx, as("mallory"), plain, merge)).To(Succeed())
				Expect(specs.GetJob(ctx, c, version, namespace, "plain").GetAnnotations()).To(HaveKeyWithValue(annotation, "alice@example.com"), merge)
			}
		})
	}
})
