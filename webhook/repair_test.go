// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/webhook"
)

var _ = Describe("A server that is its own authority", func() {
	It("publishes again what somebody overwrites, and follows to an authority that is made anew", func(ctx SpecContext) {
		environment, err := testkit.StartAPI()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(environment.Stop)
		alone, err := client.New(environment.Config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		Expect(alone.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "di-system"}})).To(Succeed())
		out, err := kubectl(ctx, environment.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", "webhook"))
		Expect(err).NotTo(HaveOccurred(), out)

		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		clk := testclock.NewFakeClock(time.Now())
		server, err := webhook.New(webhook.Options{
			Config: environment.Config, URL: "https://" + listener.Addr().String(), Listener: listener, Clock: clk, Log: GinkgoLogr,
		})
		Expect(err).NotTo(HaveOccurred())
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- server.Run(running) }()
		DeferCleanup(func() {
			stop()
			Eventually(ended).WithTimeout(time.Minute).Should(Receive(BeNil()))
		})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		calling := &caller{api: alone, address: listener.Addr().String()}
		first, err := calling.bundle(ctx)
		Expect(err).NotTo(HaveOccurred())
		patient := func(actual any) AsyncAssertion { return Eventually(actual).WithContext(ctx).WithTimeout(time.Minute) }
		// Whoever waits for the time is given it.
		pass := func(duration time.Duration) {
			GinkgoHelper()
			patient(clk.HasWaiters).Should(BeTrue())
			clk.Step(duration)
		}

		By("somebody overwriting")
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		definition.SetName(webhook.CRD)
		authority, _ := newCertificate("somebody", nil, nil)
		Expect(alone.Patch(ctx, definition, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":%q}}}}}`, base64.StdEncoding.EncodeToString(encodePEM(authority)))))).To(Succeed())
		pass(time.Minute)
		patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(And(ContainSubstring(string(first)), ContainSubstring(string(encodePEM(authority)))))
		pass(time.Hour)
		patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(Equal(first))

		By("somebody taking the authority away")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: webhook.AuthoritySecret}}
		Expect(alone.Delete(ctx, secret)).To(Succeed())
		patient(func() error { return alone.Get(ctx, client.ObjectKeyFromObject(secret), secret) }).Should(Succeed())
		second := secret.Data[corev1.TLSCertKey]
		Expect(second).NotTo(Equal(first))
		patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(And(ContainSubstring(string(first)), ContainSubstring(string(second))))
		Expect(calling.shake(ctx, first)).To(Succeed(), "nothing is served yet that API servers may not know")
		patient(func() error {
			clk.Step(time.Second)
			return calling.shake(ctx, second)
		}).Should(Succeed())
		patient(func() error { return webhook.Probe(ctx, alone, metav1.NamespaceDefault) }).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})
