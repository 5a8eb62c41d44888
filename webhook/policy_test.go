// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/crds"
	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/webhook"
)

const refusal = "spec.conversion.strategy must stay Webhook"

var _ = Describe("The policy that protects the conversion", func() {
	It("refuses whoever switches it off while there are two versions, and lets pass whoever leaves one", func(ctx SpecContext) {
		alone := newCluster(ctx)
		out, err := kubectl(ctx, alone.environment.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", "policy"))
		Expect(err).NotTo(HaveOccurred(), out)
		// The test's API server begins without the stanza, which the operator puts there.
		server := alone.serve(ctx, webhook.Options{})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		definition := alone.definition(ctx)
		none := mergePatch(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)

		By("a patch, in force as soon as the API server knows the policy")
		Eventually(func() error { return alone.Patch(ctx, definition.DeepCopy(), none, client.DryRunAll) }).WithContext(ctx).Should(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(refusal)), MatchError(ContainSubstring("di-orchestrator retire-crds"))))
		Expect(alone.Patch(ctx, definition.DeepCopy(), none)).To(MatchError(ContainSubstring("served: v1alpha1, v2alpha1; stored: v2alpha1")))

		By("manifests that lack the stanza, replaced, applied, and tried")
		manifest := filepath.Join(GinkgoT().TempDir(), "crd.yaml")
		bare := definition.DeepCopy()
		unstructured.RemoveNestedField(bare.Object, "spec", "conversion")
		bare.Object["metadata"] = map[string]any{"name": webhook.CRD}
		delete(bare.Object, "status")
		raw, err := bare.MarshalJSON()
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(manifest, raw, 0o600)).To(Succeed())
		for _, args := range [][]string{{"replace"}, {"replace", "--dry-run=server"}, {"apply", "--server-side", "--force-conflicts", "--field-manager=helm"}} {
			out, err := kubectl(ctx, alone.environment.KubeConfig, append(args, "-f", manifest)...)
			if args[0] == "apply" {
				// What is not said there stays, as the operator owns it.
				Expect(err).NotTo(HaveOccurred(), out)
				continue
			}
			Expect(err).To(HaveOccurred())
			Expect(out).To(ContainSubstring(refusal))
		}
		strategy, _, err := unstructured.NestedString(alone.definition(ctx).Object, "spec", "conversion", "strategy")
		Expect(err).NotTo(HaveOccurred())
		Expect(strategy).To(Equal("Webhook"))

		By("other definitions, which are nobody's")
		others := definition.DeepCopy()
		others.SetName("aggregatorconfigs.diengine.opendilab.org")
		Expect(alone.Patch(ctx, others, mergePatch(`{"metadata":{"labels":{"a":"b"}},"spec":{"conversion":{"strategy":"None"}}}`))).To(Succeed())

		By("a version that is served no more, though it is stored still")
		Expect(alone.stored(ctx, "v1alpha1", "v2alpha1")).To(Succeed())
		Expect(alone.retire(ctx)).To(MatchError(ContainSubstring(refusal)))
		Expect(alone.stored(ctx, "v2alpha1")).To(Succeed())

		By("uninstalling while the operator runs: retire-crds leaves one version, in the same write")
		var told bytes.Buffer
		installer := &crds.Installer{API: alone.typed(), Namespace: "di-system", Out: &told}
		Expect(installer.Retire(ctx, webhook.MutatingConfiguration, webhook.ValidatingConfiguration, webhook.CRD)).To(Succeed())
		Expect(told.String()).To(ContainSubstring("without a webhook"))
		By("installing again")
		Expect(installer.Install(ctx)).To(Succeed())
		Expect(alone.Patch(ctx, definition.DeepCopy(), none)).To(MatchError(ContainSubstring(refusal)))

		By("creating it without, as from an old manifest")
		Expect(alone.Delete(ctx, definition.DeepCopy())).To(Succeed())
		Eventually(func() error { return alone.Create(ctx, bare.DeepCopy(), client.DryRunAll) }).WithContext(ctx).Should(MatchError(ContainSubstring(refusal)))

		By("the API server having found no fault in it")
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		Expect(alone.Get(ctx, client.ObjectKey{Name: "di-orchestrator-conversion"}, policy)).To(Succeed())
		if policy.Status.TypeChecking != nil {
			Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty())
		}
	})
})

// stored writes which versions objects are said to be stored in.
func (c *cluster) stored(ctx context.Context, versions ...any) error {
	definition := c.definition(ctx)
	if err := unstructured.SetNestedSlice(definition.Object, versions, "status", "storedVersions"); err != nil {
		return err
	}
	return c.Status().Update(ctx, definition)
}

// retire switches the conversion off and serves one version, whatever is stored.
func (c *cluster) retire(ctx context.Context) error {
	definition := c.definition(ctx)
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for i := range versions {
		if version, ok := versions[i].(map[string]any); ok {
			version["served"] = version["storage"]
		}
	}
	if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
		return err
	}
	if err := unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion"); err != nil {
		return err
	}
	return c.Update(ctx, definition, client.DryRunAll)
}

// typed returns a client that knows definitions by their type.
func (c *cluster) typed() client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	typed, err := client.New(c.environment.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return typed
}
