// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certs issues the certificates of the webhooks, and publishes the authority that the API
// server must trust. The authority is stored in a Secret. Each replica signs a short-lived
// certificate for itself in memory. The authority is published in the dijobs CRD and in the webhook
// configurations. The package must not read or write files.
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
	// authorityMargin is how long before its expiry an authority is replaced. It is longer than the
	// lifetime of every certificate that the authority signs.
	authorityMargin = 30 * 24 * time.Hour
	// skew is the maximum difference between the clocks of a cluster. Certificates become valid
	// this much earlier than their signature.
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

// LoadOrCreate returns the authority that is stored in the Secret. The first replica creates it,
// and all others read that one. It replaces an authority that is about to expire, that does not
// decode, or whose rotation AnnotationRotate requests.
func LoadOrCreate(ctx context.Context, api client.Client, name types.NamespacedName, clk clock.PassiveClock) (*Authority, error) {
	// Each iteration that neither reads nor writes an authority lost a race against another
	// replica.
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

// loadAuthority returns the authority of the Secret. Another program creates and replaces it.
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

// newAuthority returns a new authority, as the data of a Secret of type TLS.
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

// parseAuthority returns the authority in a Secret's data if it is valid now.
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
