// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// issuer keeps the certificate of 127.0.0.1 in a Secret, as cert-manager does.
type issuer struct {
	api client.Client
	// authority is the last issued authority, as PEM.
	authority []byte
}

// issue writes a new certificate with a new authority.
func (i *issuer) issue(ctx context.Context) {
	GinkgoHelper()
	authority, authorityKey := newCertificate("authority", nil, nil)
	leaf, key := newCertificate("leaf", authority, authorityKey)
	encoded := specs.Must(x509.MarshalECPrivateKey(key))
	i.authority = encodePEM(authority)
	i.write(ctx, map[string][]byte{
		corev1.TLSCertKey:       encodePEM(leaf),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
		"ca.crt":                i.authority,
	})
}

// write replaces the data of the Secret.
func (i *issuer) write(ctx context.Context, data map[string][]byte) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: "issued"}, Type: corev1.SecretTypeTLS, Data: data}
	Expect(client.IgnoreAlreadyExists(i.api.Create(ctx, secret.DeepCopy()))).To(Succeed())
	Expect(i.api.Update(ctx, secret)).To(Succeed())
}

// newCertificate returns a certificate that another signs, or a self-signed authority.
func newCertificate(name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	GinkgoHelper()
	key := specs.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	serial := specs.Must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100)))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name + serial.String()},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		template.IPAddresses, template.ExtKeyUsage = nil, nil
		by, byKey = template, key
	}
	der := specs.Must(x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey))
	made := specs.Must(x509.ParseCertificate(der))
	return made, key
}

func encodePEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

var _ = Describe("A server whose certificate somebody else keeps in a Secret", func() {
	It("waits for it, names what is wrong with it, and follows it to another authority without a call that fails", func(ctx SpecContext) {
		alone := newCluster(ctx)
		server := alone.serve(ctx, webhook.Options{CertificateSecret: "issued", Overlap: time.Minute})
		patient := func(actual any) AsyncAssertion { return Eventually(actual).WithContext(ctx) }

		By("waiting")
		by := &issuer{api: alone}
		patient(server.isReady).Should(MatchError(ContainSubstring("Secret di-system/issued is not there")))
		by.write(ctx, map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x")})
		patient(server.isReady).Should(MatchError(ContainSubstring("Secret di-system/issued has nothing under ca.crt")))
		by.write(ctx, map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x"), "ca.crt": []byte("x")})
		patient(server.isReady).Should(MatchError(ContainSubstring("Secret di-system/issued: ca.crt: it holds no certificate")))

		By("serving")
		by.issue(ctx)
		first := by.authority
		patient(server.isReady).Should(Succeed())
		calling := &caller{api: alone, address: server.address}
		patient(func() error { return admissionprobe.Probe(ctx, alone, metav1.NamespaceDefault) }).Should(Succeed())
		Expect(calling.bundle(ctx)).To(Equal(first))

		By("following")
		stop := calling.start(ctx)
		for range 2 {
			before := by.authority
			by.issue(ctx)
			patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(And(ContainSubstring(string(before)), ContainSubstring(string(by.authority))))
			alone.awaitLearned(ctx, calling)
			server.pass(ctx, 10*time.Second, func() error { return calling.isPublished(ctx, by.authority) })
			Expect(calling.shake(ctx, by.authority)).To(Succeed())
			calling.more(ctx, 10)
		}
		Expect(stop()).NotTo(HaveOccurred())

		By("keeping what it has where the next is of no use")
		by.write(ctx, map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x"), "ca.crt": by.authority})
		Expect(server.isReady()).To(Succeed())
		Expect(admissionprobe.Probe(ctx, alone, metav1.NamespaceDefault)).To(Succeed())
		by.issue(ctx)
		server.pass(ctx, 10*time.Second, func() error { return calling.isPublished(ctx, by.authority) })
	})

	It("agrees with an injector that publishes the same authority, and writes no more then", func(ctx SpecContext) {
		alone := newCluster(ctx)
		by := &issuer{api: alone}
		by.issue(ctx)
		server := alone.serve(ctx, webhook.Options{CertificateSecret: "issued", Overlap: time.Minute})
		Eventually(server.isReady).WithContext(ctx).Should(Succeed())
		calling := &caller{api: alone, address: server.address}

		By("the injector writing the same")
		injected := alone.definition(ctx)
		before := injected.GetResourceVersion()
		inject(ctx, alone, by.authority)
		Expect(alone.definition(ctx).GetResourceVersion()).To(Equal(before), "it finds what it would write")

		By("the injector being first with another authority")
		by.issue(ctx)
		inject(ctx, alone, by.authority)
		server.pass(ctx, 10*time.Second, func() error {
			return errors.Join(calling.isPublished(ctx, by.authority), calling.shake(ctx, by.authority))
		})
		Eventually(func() error { return admissionprobe.Probe(ctx, alone, metav1.NamespaceDefault) }).WithContext(ctx).Should(Succeed())

		By("both being content")
		inject(ctx, alone, by.authority)
		settled := alone.definition(ctx).GetResourceVersion()
		for range 3 {
			// The server has checked the Secret when it waits again.
			Eventually(server.clock.HasWaiters).WithContext(ctx).Should(BeTrue())
			server.clock.Step(time.Minute)
		}
		Eventually(server.clock.HasWaiters).WithContext(ctx).Should(BeTrue())
		Expect(alone.definition(ctx).GetResourceVersion()).To(Equal(settled))
	})
})

// inject writes the CA bundle as cert-manager's injector does: only if it differs, and without
// other bundles.
func inject(ctx context.Context, api client.Client, authority []byte) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd, err := definition(ctx, api)
		if err != nil {
			return err
		}
		path := []string{"spec", "conversion", "webhook", "clientConfig", "caBundle"}
		encoded := base64.StdEncoding.EncodeToString(authority)
		if there, _, _ := unstructured.NestedString(crd.Object, path...); there == encoded {
			return nil
		}
		if err := unstructured.SetNestedField(crd.Object, encoded, path...); err != nil {
			return err
		}
		return api.Update(ctx, crd, client.FieldOwner("cainjector"))
	})).To(Succeed())
}
