// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates and keys of the local cluster. They are
// made all at once, so that a half made set never stays.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Names of the certificates; files are NAME.crt and NAME.key.
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
	KubeletServer     = "kubelet-server" // likewise
	CoreDNS           = "coredns"
	Admin             = "admin"
	ServiceAccount    = "service-account"
)

// Validity of all certificates. A set about to expire is recreated.
const (
	validity    = 365 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
)

// Request is one certificate to sign.
type Request struct {
	// Name is one of the names above.
	Name string
	// CommonName is the user a client is.
	CommonName string
	// Groups are the groups the user is in.
	Groups []string
	// Hosts are the DNS names and addresses of a server.
	Hosts []string
	// Issuer is the name of the authority; empty means CA.
	Issuer string
}

// Ensure makes the certificates in a directory if they are not there yet or
// are about to expire, and reports whether it did.
func Ensure(dir string, requests []Request, now time.Time) (bool, error) {
	if fresh(dir, requests, now) {
		return false, nil
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return false, fmt.Errorf("remove what an interrupted run left: %w", err)
	}
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return false, fmt.Errorf("folder of certificates: %w", err)
	}
	if err := writeAll(partial, requests, now); err != nil {
		return false, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("remove old certificates: %w", err)
	}
	if err := os.Rename(partial, dir); err != nil {
		return false, fmt.Errorf("put certificates in place: %w", err)
	}
	return true, nil
}

// fresh reports whether all certificates are there, valid for a while and for
// what is asked of them.
func fresh(dir string, requests []Request, now time.Time) bool {
	for _, request := range requests {
		content, err := os.ReadFile(filepath.Join(dir, request.Name+".crt"))
		if err != nil {
			return false
		}
		block, _ := pem.Decode(content)
		if block == nil {
			return false
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.Add(renewBefore).After(cert.NotAfter) || !matches(cert, request) {
			return false
		}
	}
	return true
}

func matches(cert *x509.Certificate, request Request) bool {
	names, addresses := splitHosts(request.Hosts)
	sameAddress := func(a, b net.IP) bool { return a.Equal(b) }
	return cert.Subject.CommonName == request.CommonName &&
		slices.Equal(cert.Subject.Organization, request.Groups) &&
		slices.Equal(cert.DNSNames, names) && slices.EqualFunc(cert.IPAddresses, addresses, sameAddress)
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func writeAll(dir string, requests []Request, now time.Time) error {
	authorities := map[string]authority{}
	for _, name := range []string{CA, FrontProxyCA} {
		created, err := newAuthority(dir, name, now)
		if err != nil {
			return fmt.Errorf("authority %s: %w", name, err)
		}
		authorities[name] = created
	}
	for _, request := range requests {
		issuer := CA
		if request.Issuer != "" {
			issuer = request.Issuer
		}
		parent, known := authorities[issuer]
		if !known {
			return fmt.Errorf("certificate %s: issuer %q is unknown", request.Name, issuer)
		}
		if err := issue(dir, request, parent, now); err != nil {
			return fmt.Errorf("certificate %s: %w", request.Name, err)
		}
	}
	return writeServiceAccountKey(dir)
}

func newAuthority(dir, name string, now time.Time) (authority, error) {
	key, err := newKey()
	if err != nil {
		return authority{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: "di-orchestrator-cluster-" + name}, now)
	if err != nil {
		return authority{}, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("sign: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("parse: %w", err)
	}
	return authority{cert: cert, key: key}, writePair(dir, name, der, key)
}

func issue(dir string, request Request, parent authority, now time.Time) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	template, err := newTemplate(pkix.Name{CommonName: request.CommonName, Organization: request.Groups}, now)
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	template.DNSNames, template.IPAddresses = splitHosts(request.Hosts)
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return writePair(dir, request.Name, der, key)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

func newTemplate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}, nil
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

func writePair(dir, name string, der []byte, key *ecdsa.PrivateKey) error {
	return errors.Join(
		writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der),
		writeKey(filepath.Join(dir, name+".key"), key),
	)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

// writeServiceAccountKey writes the key pair that tokens of service accounts
// are signed and checked with.
func writeServiceAccountKey(dir string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode public key: %w", err)
	}
	return errors.Join(
		writeKey(filepath.Join(dir, ServiceAccount+".key"), key),
		writePEM(filepath.Join(dir, ServiceAccount+".pub"), "PUBLIC KEY", public),
	)
}

func writePEM(path, kind string, der []byte) error {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}
