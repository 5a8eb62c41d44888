// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs makes the certificates that the webhooks serve with, and tells
// the API server which authority to trust: an authority of its own, kept in a
// Secret; short-lived certificates that each replica signs for itself in
// memory; and the publication of the authority in the dijobs CRD and the
// webhook configurations. It must not read or write files.
package certs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/certs/record"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// authorityMargin is how long before its end an authority is replaced: longer
	// than any certificate lives that it has signed.
	authorityMargin = 30 * 24 * time.Hour
	// skew is how far the clocks of a cluster may differ: certificates are
	// valid from so much earlier.
	skew = time.Hour
)

// Authority is a certificate authority that can sign.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	bundle      []byte
}

// Bundle returns the certificates to trust, as PEM.
func (a *Authority) Bundle() []byte {
	return bytes.Clone(a.bundle)
}

// LoadOrCreate returns the authority that is kept in the Secret. Whoever comes
// first creates it, and everybody else reads the winner's. One that nobody can
// use any more, as it is about to expire or does not decode, is replaced in the
// same way, and so is one of which somebody asks that by AnnotationRotate.
func LoadOrCreate(ctx context.Context, api client.Client, name types.NamespacedName, clk clock.PassiveClock) (*Authority, error) {
	// Each turn that neither finds nor writes an authority lost a race, which
	// somebody else then won.
	var lost error
	for range 5 {
		authority, err := loadOrCreateOnce(ctx, api, name, clk)
		if err == nil {
			return authority, nil
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("certificate authority in Secret %s: %w", name, err)
		}
		lost = err
	}
	return nil, fmt.Errorf("certificate authority in Secret %s: lost every race for it: %w", name, lost)
}

// loadAuthority returns the authority that the Secret holds, and that another program creates and
// replaces.
func loadAuthority(ctx context.Context, api client.Reader, name types.NamespacedName, clk clock.PassiveClock) (*Authority, error) {
	secret := &corev1.Secret{}
	if err := api.Get(ctx, name, secret); err != nil {
		return nil, fmt.Errorf("reading the certificate authority in Secret %s: %w", name, err)
	}
	authority, err := parseAuthority(secret.Data, clk.Now())
	if err != nil {
		return nil, fmt.Errorf("certificate authority in Secret %s: %w", name, err)
	}
	return authority, nil
}

func loadOrCreateOnce(ctx context.Context, api client.Client, name types.NamespacedName, clk clock.PassiveClock) (*Authority, error) {
	secret := &corev1.Secret{}
	err := api.Get(ctx, name, secret)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if _, asked := secret.Annotations[record.AnnotationRotate]; exists && !asked {
		if authority, err := parseAuthority(secret.Data, clk.Now()); err == nil {
			return authority, nil
		}
	}
	data, err := newAuthority(clk.Now())
	if err != nil {
		return nil, err
	}
	if exists {
		replace(secret, data, clk.Now())
		err = api.Update(ctx, secret)
	} else {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
			Type:       corev1.SecretTypeTLS,
			Data:       data,
		}
		err = api.Create(ctx, secret)
	}
	if err != nil {
		return nil, err
	}
	return parseAuthority(data, clk.Now())
}

// newAuthority makes an authority, as the data of a Secret of type TLS.
func newAuthority(now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "di-orchestrator-webhook-ca"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the authority's key: %w", err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// parseAuthority reads an authority that can be used now.
func parseAuthority(data map[string][]byte, now time.Time) (*Authority, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not an ECDSA key")
	}
	if !pair.Leaf.IsCA {
		return nil, errors.New("the certificate is not that of an authority")
	}
	if now.Before(pair.Leaf.NotBefore) || now.Add(authorityMargin).After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("the certificate is valid from %s to %s, not now and for %s more", pair.Leaf.NotBefore, pair.Leaf.NotAfter, authorityMargin)
	}
	return &Authority{certificate: pair.Leaf, key: key, bundle: data[corev1.TLSCertKey]}, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generating a serial number: %w", err)
	}
	return serial, nil
}
