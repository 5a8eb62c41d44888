// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/webhook"
)

// issuer keeps the certificate of 127.0.0.1 in a Secret, as cert-manager does.
type issuer struct {
	api client.Client
	// authority is the last one, as PEM.
	authority []byte
}

// issue writes a new certificate by a new authority.
func (i *issuer) issue(ctx context.Context) {
	GinkgoHelper()
	authority, authorityKey := newCertificate("authority", nil, nil)
	leaf, key := newCertificate("leaf", authority, authorityKey)
	encoded, err := x509.MarshalECPrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	i.authority = encodePEM(authority)
	i.write(ctx, map[string][]byte{
		corev1.TLSCertKey:       encodePEM(leaf),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
		"ca.crt":                i.authority,
	})
}

// write writes the Secret whole.
func (i *issuer) write(ctx context.Context, data map[string][]byte) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: "issued"}, Type: corev1.SecretTypeTLS, Data: data}
	Expect(client.IgnoreAlreadyExists(i.api.Create(ctx, secret.DeepCopy()))).To(Succeed())
	Expect(i.api.Update(ctx, secret)).To(Succeed())
}

// newCertificate makes a certificate that another signs, or an authority that signs itself.
func newCertificate(name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name + serial.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		template.IPAddresses, template.ExtKeyUsage = nil, nil
		by, byKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey)
	Expect(err).NotTo(HaveOccurred())
	made, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return made, key
}

func encodePEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// caller calls the webhooks without end, through the API server and as one does.
type caller struct {
	api     client.Client
	address string
	calls   atomic.Int32
}

// run calls until the context ends, or a call fails.
func (c *caller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		bundle, err := c.bundle(ctx)
		if err == nil {
			err = errors.Join(webhook.Probe(ctx, c.api, metav1.NamespaceDefault), c.shake(ctx, bundle))
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		c.calls.Add(1)
	}
	return nil
}

// bundle returns whom the API server is to trust where it converts.
func (c *caller) bundle(ctx context.Context) ([]byte, error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := c.api.Get(ctx, client.ObjectKey{Name: webhook.CRD}, crd); err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	encoded, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(encoded)
}

// shake opens a connection as somebody who trusts a bundle, and only it.
func (c *caller) shake(ctx context.Context, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	connection, err := dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("connecting by the published bundle: %w", err)
	}
	return connection.Close()
}

var _ = Describe("A server whose certificate somebody else keeps in a Secret", func() {
	It("waits for it, names what is wrong with it, and follows it to another authority without a call that fails", func(ctx SpecContext) {
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
		address := listener.Addr().String()
		server, err := webhook.New(webhook.Options{
			Config: environment.Config, URL: "https://" + address, Listener: listener, CertificateSecret: "issued", Overlap: time.Second, Log: GinkgoLogr,
		})
		Expect(err).NotTo(HaveOccurred())
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- server.Run(running) }()
		DeferCleanup(func() {
			stop()
			Eventually(ended).Should(Receive(BeNil()))
		})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil)
		Expect(err).NotTo(HaveOccurred())
		ready := func() error { return server.Ready(request) }
		patient := func(actual any) AsyncAssertion { return Eventually(actual).WithContext(ctx) }

		By("waiting")
		by := &issuer{api: alone}
		patient(ready).Should(MatchError(ContainSubstring("Secret di-system/issued is not there")))
		by.write(ctx, map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x")})
		patient(ready).Should(MatchError(ContainSubstring("Secret di-system/issued has nothing under ca.crt")))
		by.write(ctx, map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x"), "ca.crt": []byte("x")})
		patient(ready).Should(MatchError(ContainSubstring("Secret di-system/issued: ca.crt: it holds no certificate")))

		By("serving")
		by.issue(ctx)
		first := by.authority
		patient(ready).Should(Succeed())
		calling := &caller{api: alone, address: address}
		patient(func() error { return webhook.Probe(ctx, alone, metav1.NamespaceDefault) }).Should(Succeed())
		Expect(calling.bundle(ctx)).To(Equal(first))

		By("following")
		called, stopCalling := context.WithCancel(ctx)
		failed := make(chan error, 1)
		go func() { failed <- calling.run(called) }()
		for range 2 {
			before := by.authority
			by.issue(ctx)
			patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(And(ContainSubstring(string(before)), ContainSubstring(string(by.authority))))
			patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(Equal(by.authority))
			Expect(calling.shake(ctx, by.authority)).To(Succeed())
			reached := calling.calls.Load()
			patient(calling.calls.Load).Should(BeNumerically(">", reached+10))
		}
		stopCalling()
		Expect(<-failed).NotTo(HaveOccurred())

		By("keeping what it has where the next is of no use")
		by.write(ctx, map[string][]byte{corev1.TLSCertKey: []byte("x"), corev1.TLSPrivateKeyKey: []byte("x"), "ca.crt": by.authority})
		Expect(ready()).To(Succeed())
		Expect(webhook.Probe(ctx, alone, metav1.NamespaceDefault)).To(Succeed())
		by.issue(ctx)
		patient(func() ([]byte, error) { return calling.bundle(ctx) }).Should(Equal(by.authority))
	})
})
