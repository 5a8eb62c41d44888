// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// createAuthority creates the authority of an issuer, as the webhooks do.
func createAuthority(ctx context.Context, issuer *certs.Issuer) {
	GinkgoHelper()
	_, err := certs.LoadOrCreate(ctx, issuer.API, issuer.Authority, issuer.Clock)
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("a server that serves TLS", func() {
	It("serves with the certificate that the operator issued, as soon as it is there", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, api.live)
		of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
		issuer := &certs.Issuer{
			API: api.live, Authority: of("authority"), Secret: of("certificate"), Bundle: of("trust"),
			Hosts: []string{"di-server.di-system"}, Clock: clock.RealClock{}, Log: GinkgoLogr,
		}
		issued := &certs.Issued{API: api.live, Secret: issuer.Secret, Clock: clock.RealClock{}, Log: GinkgoLogr}

		By("serving before there is a certificate")
		address := start(ctx, servingTLS(issued)).addresses[1]
		dialer := &tls.Dialer{Config: &tls.Config{ServerName: issuer.Hosts[0], MinVersion: tls.VersionTLS12}}
		_, err := dialer.DialContext(ctx, "tcp", address)
		Expect(err).To(HaveOccurred())

		By("issuing one")
		createAuthority(ctx, issuer)
		Expect(issuer.Issue(ctx)).To(Succeed())
		Expect(issued.Read(ctx)).To(Succeed())
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM([]byte(clientsTrust(ctx, issuer.Bundle)))).To(BeTrue())

		for _, protocol := range []string{"h2", "http/1.1"} {
			transport := &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs: roots, ServerName: issuer.Hosts[0], NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12,
			}, ForceAttemptHTTP2: protocol == "h2"}
			DeferCleanup(transport.CloseIdleConnections)
			request := specs.Must(http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/v1alpha1/replicas", strings.NewReader("{}")))
			response, err := (&http.Client{Transport: transport}).Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(Equal(http.StatusOK))
			Expect(response.TLS.NegotiatedProtocol).To(Equal(protocol))
		}
	})

	It("serves HTTP/2 whichever of its doors opens first", func(ctx SpecContext) {
		issuer := &certs.Issuer{
			API: api.live, Clock: clock.RealClock{}, Log: GinkgoLogr, Hosts: []string{"di-server.di-system"},
			Authority: types.NamespacedName{Namespace: specs.Namespace(ctx, api.live), Name: "authority"},
		}
		issuer.Secret, issuer.Bundle = issuer.Authority, issuer.Authority
		issuer.Secret.Name, issuer.Bundle.Name = "certificate", "trust"
		createAuthority(ctx, issuer)
		Expect(issuer.Issue(ctx)).To(Succeed())
		issued := &certs.Issued{API: api.live, Secret: issuer.Secret, Clock: clock.RealClock{}, Log: GinkgoLogr}
		Expect(issued.Read(ctx)).To(Succeed())
		for range 50 {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} // another spec checks the certificate
			request := specs.Must(http.NewRequestWithContext(ctx, http.MethodGet, "https://"+start(ctx, servingTLS(issued)).addresses[1]+"/healthz", http.NoBody))
			response, err := (&http.Client{Transport: transport}).Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.ProtoMajor).To(Equal(2))
			transport.CloseIdleConnections()
		}
	})

	It("requires a source of its certificate", func() {
		_, err := server.New(server.Options{
			Client: api.cached, APIReader: api.own, Cache: api.cache, Log: GinkgoLogr, TLSAddress: "127.0.0.1:0",
		})
		Expect(err).To(MatchError("server options: GetCertificate is required beside TLSAddress"))
	})
})

// clientsTrust returns the bundle that clients trust.
func clientsTrust(ctx context.Context, bundle types.NamespacedName) string {
	GinkgoHelper()
	var trust corev1.ConfigMap
	Expect(api.live.Get(ctx, bundle, &trust)).To(Succeed())
	return trust.Data[certs.BundleKey]
}

// servingTLS returns the options of a server that serves TLS with a certificate.
func servingTLS(issued *certs.Issued) server.Options {
	return server.Options{TLSAddress: "127.0.0.1:0", GetCertificate: issued.GetCertificate}
}
