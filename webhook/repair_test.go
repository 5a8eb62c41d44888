// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// restorations returns the counters of restorations.
func restorations(registry *prometheus.Registry) map[string]float64 {
	GinkgoHelper()
	families := specs.Must(registry.Gather())
	counts := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "di_orchestrator_webhook_restorations_total" && metric.GetCounter().GetValue() > 0 {
				counts[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetCounter().GetValue()
			}
		}
	}
	return counts
}

var _ = Describe("A server that is its own authority", func() {
	It("publishes again at once what somebody resets, says who it was, and leaves alone what needs no conversion", func(ctx SpecContext) {
		alone := newCluster(ctx)
		registry, recorder := prometheus.NewRegistry(), events.NewFakeRecorder(10)
		server := alone.serve(ctx, webhook.Options{Registerer: registry, Recorder: recorder})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		first := alone.authority(ctx).Data[corev1.TLSCertKey]
		calling := &caller{api: alone, address: server.address}
		by := client.FieldOwner("gitops")

		By("resetting the conversion where no policy protects it, and no time passing")
		alone.unprotect(ctx)
		definition := alone.definition(ctx)
		whole := definition.Object["spec"]
		reset := mergePatch(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		Expect(alone.Patch(ctx, definition.DeepCopy(), reset, by)).To(Succeed())
		Eventually(func() any { return alone.definition(ctx).Object["spec"] }).WithContext(ctx).Should(Equal(whole))
		Eventually(recorder.Events).WithContext(ctx).Should(Receive(And(ContainSubstring("Warning ConversionRestored"),
			ContainSubstring("conversion, caBundle, endpoint of CustomResourceDefinition "+webhook.CRD+" was overwritten, by gitops"))))
		Eventually(func() error { return admissionprobe.Probe(ctx, alone, metav1.NamespaceDefault) }).WithContext(ctx).Should(Succeed())

		By("resetting where to call, again and again: who does so forever is not answered ever faster")
		for _, patch := range []string{
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"url":null,"service":{"namespace":"di-system","name":"other","path":"/other"}}}}}}`,
			`{"spec":{"conversion":{"webhook":{"conversionReviewVersions":["v1beta1"]}}}}`,
		} {
			Expect(alone.Patch(ctx, definition.DeepCopy(), mergePatch(patch), by)).To(Succeed())
			server.pass(ctx, time.Second, func() error {
				return same(alone.definition(ctx).Object["spec"], whole)
			})
		}

		By("resetting a webhook configuration, whose other fields are somebody's")
		mutating := mutatingConfiguration()
		Expect(alone.Get(ctx, client.ObjectKeyFromObject(mutating), mutating)).To(Succeed())
		published := mutating.DeepCopy()
		mutating.Labels = map[string]string{"somebody": "else"}
		for i := range mutating.Webhooks {
			mutating.Webhooks[i].ClientConfig.CABundle = nil
			mutating.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"jobs": "here"}}
		}
		kept := mutating.DeepCopy()
		Expect(alone.Update(ctx, mutating, by)).To(Succeed())
		for i := range kept.Webhooks {
			kept.Webhooks[i].ClientConfig = published.Webhooks[i].ClientConfig
		}
		server.pass(ctx, time.Second, func() error {
			found := mutatingConfiguration()
			err := alone.Get(ctx, client.ObjectKeyFromObject(found), found)
			return errors.Join(err, same(found.Webhooks, kept.Webhooks), same(found.Labels, kept.Labels))
		})
		Eventually(func() map[string]float64 { return restorations(registry) }).WithContext(ctx).Should(Equal(map[string]float64{
			"CustomResourceDefinition conversion": 2, "CustomResourceDefinition caBundle": 1, "CustomResourceDefinition endpoint": 2,
			"MutatingWebhookConfiguration caBundle": 1,
		}))

		By("trusting somebody else, who is trusted besides for an hour")
		authority, _ := newCertificate("somebody", nil, nil)
		Expect(alone.Patch(ctx, definition.DeepCopy(), mergePatch(fmt.Sprintf(
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":%q}}}}}`, base64.StdEncoding.EncodeToString(encodePEM(authority)))), by)).To(Succeed())
		server.pass(ctx, time.Second, func() error {
			return calling.isPublished(ctx, append(append([]byte{}, first...), encodePEM(authority)...))
		})
		server.pass(ctx, 10*time.Minute, func() error { return calling.isPublishedEverywhere(ctx, first) })

		By("retiring the definition, which then needs nobody")
		retired := alone.definition(ctx)
		versions, _, err := unstructured.NestedSlice(retired.Object, "spec", "versions")
		Expect(err).NotTo(HaveOccurred())
		Expect(versions[0]).To(HaveKeyWithValue("name", "v1alpha1"))
		unserved, ok := versions[0].(map[string]any)
		Expect(ok).To(BeTrue())
		unserved["served"] = false
		Expect(unstructured.SetNestedSlice(retired.Object, versions, "spec", "versions")).To(Succeed())
		Expect(unstructured.SetNestedMap(retired.Object, map[string]any{"strategy": "None"}, "spec", "conversion")).To(Succeed())
		Expect(alone.Update(ctx, retired)).To(Succeed())
		// The server checks the definition before the configuration.
		Expect(alone.Get(ctx, client.ObjectKeyFromObject(mutating), mutating)).To(Succeed())
		mutating.Webhooks[0].ClientConfig.CABundle = nil
		Expect(alone.Update(ctx, mutating, by)).To(Succeed())
		server.pass(ctx, time.Second, func() error {
			found := mutatingConfiguration()
			err := alone.Get(ctx, client.ObjectKeyFromObject(found), found)
			return errors.Join(err, same(found.Webhooks, kept.Webhooks))
		})
		Expect(alone.definition(ctx).GetResourceVersion()).To(Equal(retired.GetResourceVersion()))
	})

	It("follows to an authority that is recreated as the Secret was taken away", func(ctx SpecContext) {
		alone := newCluster(ctx)
		server := alone.serve(ctx, webhook.Options{})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		calling := &caller{api: alone, address: server.address}
		secret := alone.authority(ctx)
		first := secret.Data[corev1.TLSCertKey]
		Expect(alone.Delete(ctx, secret)).To(Succeed())
		Eventually(func() error { return alone.Get(ctx, client.ObjectKeyFromObject(secret), secret) }).WithContext(ctx).Should(Succeed())
		second := secret.Data[corev1.TLSCertKey]
		Expect(second).NotTo(Equal(first))
		Eventually(func() ([]byte, error) { return calling.bundle(ctx) }).WithContext(ctx).Should(
			And(ContainSubstring(string(first)), ContainSubstring(string(second))))
		Expect(calling.shake(ctx, first)).To(Succeed(), "nothing is served yet that API servers may not know")
		server.pass(ctx, time.Second, func() error { return calling.shake(ctx, second) })
		Eventually(func() error { return admissionprobe.Probe(ctx, alone, metav1.NamespaceDefault) }).WithContext(ctx).Should(Succeed())
	})
})

// same returns nil if the found value equals the wanted one.
func same(found, wanted any) error {
	if matches, err := Equal(wanted).Match(found); err != nil || !matches {
		return errors.Join(err, fmt.Errorf("got %v, want %v", found, wanted))
	}
	return nil
}
