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

// leafLife is the lifetime of a serving certificate. It is renewed after two thirds of that.
const leafLife = 7 * 24 * time.Hour

// Leaf is the serving certificate of one replica. It is signed in memory. The first handshake after
// it is due reissues it, since a suspended machine could miss a timer.
type Leaf struct {
	authority *Authority
	hosts     []string
	clock     clock.PassiveClock

	// mutex guards current and renewAt.
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

// GetCertificate implements the callback of tls.Config.
func (l *Leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return l.Certificate()
}

// Certificate returns the current serving certificate.
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

// VerifiedBy returns an error unless a client that trusts only the bundle accepts the serving
// certificate for each host.
func (l *Leaf) VerifiedBy(bundle []byte) error {
	certificate, err := l.Certificate()
	if err != nil {
		return err
	}
	return verify(certificate.Leaf, bundle, nil, l.hosts, l.clock.Now())
}

// verify returns an error unless a client that trusts only the bundle, with the given
// intermediates, accepts a certificate for each host at a time.
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

// sign creates a key and signs a serving certificate for the hosts.
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
