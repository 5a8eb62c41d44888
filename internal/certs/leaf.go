// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// leafLife is how long a serving certificate is valid; it is renewed when two
// thirds of that are over.
const leafLife = 7 * 24 * time.Hour

// Leaf is the certificate that one replica serves with. It is signed in memory,
// and reissued by the first handshake after it is due: no timer that a
// suspended machine could miss.
type Leaf struct {
	authority *Authority
	hosts     []string
	clock     clock.PassiveClock

	// mutex protects current and renewAt.
	mutex   sync.Mutex
	current *tls.Certificate
	renewAt time.Time
}

// NewLeaf returns a serving certificate for the host names and addresses.
func NewLeaf(authority *Authority, hosts []string, clk clock.PassiveClock) (*Leaf, error) {
	leaf := &Leaf{authority: authority, hosts: hosts, clock: clk}
	_, err := leaf.Certificate()
	return leaf, err
}

// GetCertificate serves a TLS handshake, as tls.Config asks for it.
func (l *Leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return l.Certificate()
}

// Certificate returns the certificate to serve with now.
func (l *Leaf) Certificate() (*tls.Certificate, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := l.clock.Now()
	if l.current != nil && now.Before(l.renewAt) {
		return l.current, nil
	}
	signed, err := l.authority.sign(l.hosts, now)
	if err != nil {
		return nil, err
	}
	l.current, l.renewAt = signed, now.Add(leafLife*2/3)
	return signed, nil
}

// VerifiedBy reports whether a client that trusts the bundle, and only it,
// accepts what is served under each of the hosts.
func (l *Leaf) VerifiedBy(bundle []byte) error {
	certificate, err := l.Certificate()
	if err != nil {
		return err
	}
	return verify(certificate.Leaf, bundle, nil, l.hosts, l.clock.Now())
}

// verify reports whether a client that trusts the bundle, and only it, accepts a
// certificate under each of the hosts at a time, given those between both.
func verify(certificate *x509.Certificate, bundle []byte, between *x509.CertPool, hosts []string, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("the bundle of %d bytes holds no certificate", len(bundle))
	}
	for _, host := range hosts {
		options := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now}
		if _, err := certificate.Verify(options); err != nil {
			return fmt.Errorf("the serving certificate for %s: %w", host, err)
		}
	}
	return nil
}

// sign makes a key and signs a serving certificate for the hosts.
func (a *Authority) sign(hosts []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: hosts[0]},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(leafLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the serving certificate: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: key, Leaf: parsed}, nil
}
