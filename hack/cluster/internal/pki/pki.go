// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki creates the certificates and keys of the local cluster. It creates all of them at
// once, so that no incomplete set remains.
package pki

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// These are the names of the certificates. The files are NAME.crt and NAME.key.
const (
	CA                = "ca"
	FrontProxyCA      = "front-proxy-ca"
	FrontProxyClient  = "front-proxy-client"
	APIServer         = "kube-apiserver"
	APIServerKubelet  = "kube-apiserver-kubelet-client"
	APIServerEtcd     = "kube-apiserver-etcd-client"
	Etcd              = "etcd"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Proxy             = "kube-proxy"
	Kubelet           = "kubelet"        // followed by the number of its node, if that has one
	KubeletServer     = "kubelet-server" // the same
	CoreDNS           = "coredns"
	Admin             = "admin"
	ServiceAccount    = "service-account"
)

// All certificates have the same validity. A set that is about to expire is recreated.
const (
	validity    = 365 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
)

// Request is one certificate to sign.
type Request struct {
	// Name is one of the names above.
	Name string
	// CommonName is the user name of a client.
	CommonName string
	// Groups are the groups of the user.
	Groups []string
	// Hosts are the DNS names and addresses of a server.
	Hosts []string
	// Issuer is the name of the authority; empty means CA.
	Issuer string
}

// Ensure creates the certificates in a directory if they do not exist or are about to expire, and
// reports whether it did.
func Ensure(dir string, requests []Request, now time.Time) (bool, error) {
	if !slices.ContainsFunc(requests, func(request Request) bool { return !fresh(dir, request, now) }) {
		return false, nil
	}
	partial := dir + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o700)); err != nil {
		return false, fmt.Errorf("folder of certificates: %w", err)
	}
	if err := writeAll(partial, requests, now); err != nil {
		return false, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(partial, dir)); err != nil {
		return false, fmt.Errorf("put certificates in place: %w", err)
	}
	return true, nil
}

// fresh reports whether a certificate exists, remains valid for a while and matches the request.
func fresh(dir string, request Request, now time.Time) bool {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, request.Name+".crt"), filepath.Join(dir, request.Name+".key"))
	if err != nil {
		return false
	}
	names, addresses := splitHosts(request.Hosts)
	return now.Add(renewBefore).Before(pair.Leaf.NotAfter) && pair.Leaf.Subject.CommonName == request.CommonName &&
		slices.Equal(pair.Leaf.Subject.Organization, request.Groups) &&
		slices.Equal(pair.Leaf.DNSNames, names) && slices.EqualFunc(pair.Leaf.IPAddresses, addresses, net.IP.Equal)
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func writeAll(dir string, requests []Request, now time.Time) error {
	authorities := map[string]*authority{}
	for _, name := range []string{CA, FrontProxyCA} {
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "di-orchestrator-cluster-" + name}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
		created, err := sign(dir, name, template, nil, now)
		if err != nil {
			return fmt.Errorf("authority %s: %w", name, err)
		}
		authorities[name] = created
	}
	for _, request := range requests {
		issuer := authorities[cmp.Or(request.Issuer, CA)]
		if issuer == nil {
			return fmt.Errorf("certificate %s: issuer %q is unknown", request.Name, request.Issuer)
		}
		template := &x509.Certificate{
			Subject:     pkix.Name{CommonName: request.CommonName, Organization: request.Groups},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}
		template.DNSNames, template.IPAddresses = splitHosts(request.Hosts)
		if _, err := sign(dir, request.Name, template, issuer, now); err != nil {
			return fmt.Errorf("certificate %s: %w", request.Name, err)
		}
	}
	return writeServiceAccountKey(dir)
}

// sign creates a key and a certificate signed by the issuer, or self-signed without one, and writes
// both.
func sign(dir, name string, template *x509.Certificate, issuer *authority, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(validity)
	template.KeyUsage |= x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	if issuer == nil {
		issuer = &authority{cert: template, key: key}
	}
	// A template without a serial number gets a random one.
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	return &authority{cert: cert, key: key}, errors.Join(writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der), writeKey(dir, name, key))
}

func splitHosts(hosts []string) (names []string, addresses []net.IP) {
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			addresses = append(addresses, address)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return writePEM(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der)
}

// writeServiceAccountKey writes the key pair that signs and verifies tokens of service accounts.
func writeServiceAccountKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode public key: %w", err)
	}
	return errors.Join(writeKey(dir, ServiceAccount, key), writePEM(filepath.Join(dir, ServiceAccount+".pub"), "PUBLIC KEY", public))
}

func writePEM(path, kind string, der []byte) error {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}
