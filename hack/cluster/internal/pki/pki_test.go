// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func requests() []Request {
	return []Request{
		{Name: APIServer, CommonName: "kube-apiserver", Hosts: []string{"kubernetes", "10.0.0.1"}},
		{Name: Admin, CommonName: "admin", Groups: []string{"system:masters"}},
		{Name: FrontProxyClient, CommonName: "front-proxy-client", Issuer: FrontProxyCA},
	}
}

func TestCertificatesAreMadeOnceAndAgainWhenTheyNoLongerFit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Now()
	otherHosts := requests()
	otherHosts[0].Hosts = []string{"kubernetes", "10.0.0.2"}
	for _, step := range []struct {
		name     string
		requests []Request
		now      time.Time
		want     bool
	}{
		{"the first time", requests(), now, true},
		{"the second time", requests(), now, false},
		{"close to the end of their life", requests(), now.Add(validity - renewBefore + time.Hour), true},
		{"for another address", otherHosts, now.Add(validity - renewBefore), true},
	} {
		made, err := Ensure(dir, step.requests, step.now)
		if err != nil {
			t.Fatal(err)
		}
		if made != step.want {
			t.Errorf("%s: made %t, want %t", step.name, made, step.want)
		}
	}
}

func TestALostFileRecreatesTheWholeSet(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if _, err := Ensure(dir, requests(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, Admin+".crt")); err != nil {
		t.Fatal(err)
	}
	made, err := Ensure(dir, requests(), time.Now())
	if err != nil || !made {
		t.Errorf("made %t (%v), want a new set", made, err)
	}
}

func TestTheServerCertificateIsValidForItsHosts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	if _, err := Ensure(dir, requests(), time.Now()); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, APIServer+".crt"), filepath.Join(dir, APIServer+".key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, CA+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, host := range []string{"kubernetes", "10.0.0.1"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("host %s: %v", host, err)
		}
	}
}
