// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
)

var _ = Describe("a server that serves TLS", func() {
	It("serves with the certificate that the operator issued, as soon as it is there", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
		issuer := &certs.Issuer{
			API: api.live, Authority: of("authority"), Secret: of("certificate"), Bundle: of("trust"),
			Hosts: []string{"di-server.di-system"}, Clock: clock.RealClock{}, Log: GinkgoLogr,
		}
		issued := &certs.Issued{API: api.live, Secret: issuer.Secret, Clock: clock.RealClock{}, Log: GinkgoLogr}

		By("serving before there is a certificate")
		address := startTLS(ctx, issued)
		dialer := &tls.Dialer{Config: &tls.Config{ServerName: issuer.Hosts[0], MinVersion: tls.VersionTLS12}}
		_, err := dialer.DialContext(ctx, "tcp", address)
		Expect(err).To(HaveOccurred())

		By("issuing one")
		Expect(issuer.Issue(ctx)).To(Succeed())
		Expect(issued.Read(ctx)).To(Succeed())
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM([]byte(clientsTrust(ctx, issuer.Bundle)))).To(BeTrue())

		for _, protocol := range []string{"h2", "http/1.1"} {
			transport := &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs: roots, ServerName: issuer.Hosts[0], NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12,
			}, ForceAttemptHTTP2: protocol == "h2"}
			DeferCleanup(transport.CloseIdleConnections)
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/v1alpha1/replicas", strings.NewReader("{}"))
			Expect(err).NotTo(HaveOccurred())
			response, err := (&http.Client{Transport: transport}).Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(Equal(http.StatusOK))
			Expect(response.TLS.NegotiatedProtocol).To(Equal(protocol))
		}
	})

	It("is trusted by its clients while the authority of its certificate is replaced", func(ctx SpecContext) {
		namespace, clk := newNamespace(ctx), clocktesting.NewFakeClock(time.Now())
		of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
		issuer := &certs.Issuer{
			API: api.live, Authority: of("authority"), Secret: of("certificate"), Bundle: of("trust"),
			Hosts: []string{"di-server.di-system"}, Clock: clk, Log: GinkgoLogr,
		}
		issued := &certs.Issued{API: api.live, Secret: issuer.Secret, Clock: clk, Log: GinkgoLogr}
		Expect(issuer.Issue(ctx)).To(Succeed())
		Expect(issued.Read(ctx)).To(Succeed())
		address, before := startTLS(ctx, issued), clientsTrust(ctx, issuer.Bundle)
		Expect(handshake(ctx, address, issuer.Hosts[0], before)).To(Succeed())

		By("asking for another authority")
		var authority corev1.Secret
		Expect(api.live.Get(ctx, issuer.Authority, &authority)).To(Succeed())
		authority.Annotations = map[string]string{record.AnnotationRotate: "now"}
		Expect(api.live.Update(ctx, &authority)).To(Succeed())
		Expect(issuer.Issue(ctx)).To(Succeed())
		Expect(issued.Read(ctx)).To(Succeed())
		both := clientsTrust(ctx, issuer.Bundle)
		Expect(handshake(ctx, address, issuer.Hosts[0], before)).To(Succeed())
		Expect(handshake(ctx, address, issuer.Hosts[0], both)).To(Succeed())

		By("serving by it")
		clk.Step(10 * time.Minute)
		Expect(issuer.Issue(ctx)).To(Succeed())
		Expect(handshake(ctx, address, issuer.Hosts[0], both)).To(Succeed())
		Expect(issued.Read(ctx)).To(Succeed())
		Expect(handshake(ctx, address, issuer.Hosts[0], both)).To(Succeed())
		Expect(handshake(ctx, address, issuer.Hosts[0], before)).NotTo(Succeed())

		By("giving up the one before")
		clk.Step(15 * time.Minute)
		Expect(issuer.Issue(ctx)).To(Succeed())
		after := clientsTrust(ctx, issuer.Bundle)
		Expect(handshake(ctx, address, issuer.Hosts[0], after)).To(Succeed())
		Expect(both).To(HavePrefix(after))
		Expect(both).To(HaveSuffix(before))
		Expect(both).To(HaveLen(len(before) + len(after)))
	})

	It("serves HTTP/2 whichever of its doors opens first", func(ctx SpecContext) {
		issuer := &certs.Issuer{
			API: api.live, Clock: clock.RealClock{}, Log: GinkgoLogr, Hosts: []string{"di-server.di-system"},
			Authority: types.NamespacedName{Namespace: newNamespace(ctx), Name: "authority"},
		}
		issuer.Secret, issuer.Bundle = issuer.Authority, issuer.Authority
		issuer.Secret.Name, issuer.Bundle.Name = "certificate", "trust"
		Expect(issuer.Issue(ctx)).To(Succeed())
		issued := &certs.Issued{API: api.live, Secret: issuer.Secret, Clock: clock.RealClock{}, Log: GinkgoLogr}
		Expect(issued.Read(ctx)).To(Succeed())
		for range 50 {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} // what it serves with is another spec's
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+startTLS(ctx, issued)+"/healthz", http.NoBody)
			Expect(err).NotTo(HaveOccurred())
			response, err := (&http.Client{Transport: transport}).Do(request)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.ProtoMajor).To(Equal(2))
			transport.CloseIdleConnections()
		}
	})

	It("requires a source of its certificate", func() {
		_, err := server.New(server.Options{
			Client: api.cached, APIReader: api.live, Cache: api.cache, Log: GinkgoLogr, TLSAddress: "127.0.0.1:0",
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

// handshake reports whether a client that trusts a bundle accepts who serves under a name.
func handshake(ctx context.Context, address, name, bundle string) error {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM([]byte(bundle))).To(BeTrue())
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// startTLS starts a server and returns the address where it serves TLS.
func startTLS(ctx context.Context, issued *certs.Issued) string {
	GinkgoHelper()
	addresses := make(chan string, 1)
	log := funcr.NewJSON(func(line string) {
		if _, rest, found := strings.Cut(line, `"address":"`); found && strings.Contains(line, `"tls":true`) {
			address, _, _ := strings.Cut(rest, `"`)
			addresses <- address
		}
	}, funcr.Options{})
	served, err := server.New(server.Options{
		Client: api.cached, APIReader: api.live, Cache: api.cache, Log: log, Identity: auth.ModeOff,
		Addresses: []string{"127.0.0.1:0"}, TLSAddress: "127.0.0.1:0", GetCertificate: issued.GetCertificate,
	})
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan error, 1)
	go func() { stopped <- served.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(stopped).Should(Receive(BeNil()))
	})
	var address string
	Eventually(addresses).Should(Receive(&address))
	return address
}
