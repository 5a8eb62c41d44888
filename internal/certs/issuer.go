// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// issueInterval is how often it is seen to that an issued certificate is
	// there and not due.
	issueInterval = 10 * time.Minute
	// issueRetry is how soon it is tried again after a failure.
	issueRetry = 10 * time.Second

	// LabelIssued marks the Secrets and ConfigMaps that an Issuer writes; of
	// others it keeps its hands off.
	LabelIssued = "diengine.opendilab.org/issued"
	// BundleKey is the key of the certificates to trust, beside an issued
	// certificate and in a ConfigMap of their own.
	BundleKey = "ca.crt"
)

// Issuer keeps a certificate for a program that may not have the authority's
// key: in a Secret, with its key, signed anew when two thirds of its life are
// over; and in a ConfigMap, which holds nothing secret, what clients are to trust.
type Issuer struct {
	// API reads and writes without a cache.
	API client.Client
	// Authority is the Secret of the authority, which is created where there is
	// none. Empty says that somebody else issues the certificate: then only its
	// ca.crt is copied to Bundle.
	Authority types.NamespacedName
	// Secret and Bundle are the Secret and the ConfigMap that are kept.
	Secret, Bundle types.NamespacedName
	// Hosts are the names that the certificate is for.
	Hosts []string
	// Clock tells the time and wakes the issuer.
	Clock clock.WithTicker
	// Log receives what goes wrong and is tried again.
	Log logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: one issues.
func (*Issuer) NeedLeaderElection() bool {
	return true
}

// Start implements manager.Runnable: it issues until the context ends.
func (i *Issuer) Start(ctx context.Context) error {
	return repeat(ctx, i.Clock, func() time.Duration {
		if err := i.Issue(ctx); err != nil {
			i.Log.Error(err, "The certificate is not issued and will be tried again", "secret", i.Secret.String())
			return issueRetry
		}
		return issueInterval
	})
}

// Issue brings Secret and ConfigMap up to date once. Those that somebody else
// made are left alone.
func (i *Issuer) Issue(ctx context.Context) error {
	if i.Authority.Name == "" {
		return i.copyBundle(ctx)
	}
	authority, err := LoadOrCreate(ctx, i.API, i.Authority, i.Clock)
	if err != nil {
		return err
	}
	return errors.Join(i.issueLeaf(ctx, authority), i.issueBundle(ctx, authority.Bundle()))
}

// copyBundle makes known who issued the certificate that somebody else keeps.
func (i *Issuer) copyBundle(ctx context.Context) error {
	var kept corev1.Secret
	if err := i.API.Get(ctx, i.Secret, &kept); err != nil {
		return fmt.Errorf("reading Secret %s, which whoever issues di-server's certificate makes: %w", i.Secret, err)
	}
	if _, err := splitBundle(kept.Data[BundleKey]); err != nil {
		return fmt.Errorf("reading Secret %s: %s: %w", i.Secret, BundleKey, err)
	}
	return i.issueBundle(ctx, kept.Data[BundleKey])
}

func (i *Issuer) issueLeaf(ctx context.Context, authority *Authority) error {
	kept := &corev1.Secret{}
	exists, err := i.find(ctx, i.Secret, kept)
	if err != nil || exists && (!isIssued(kept) || !i.due(kept.Data, authority)) {
		return err
	}
	signed, err := authority.sign(i.Hosts, i.Clock.Now())
	if err != nil {
		return err
	}
	data, err := encode(signed, authority)
	if err != nil {
		return err
	}
	if exists {
		kept.Data = data
		return written(kept, i.API.Update(ctx, kept))
	}
	kept = &corev1.Secret{ObjectMeta: issuedMeta(i.Secret), Type: corev1.SecretTypeTLS, Data: data}
	return written(kept, i.API.Create(ctx, kept))
}

func (i *Issuer) issueBundle(ctx context.Context, bundle []byte) error {
	kept := &corev1.ConfigMap{}
	exists, err := i.find(ctx, i.Bundle, kept)
	data := map[string]string{BundleKey: string(bundle)}
	if err != nil || exists && (!isIssued(kept) || maps.Equal(kept.Data, data)) {
		return err
	}
	if exists {
		kept.Data = data
		return written(kept, i.API.Update(ctx, kept))
	}
	kept = &corev1.ConfigMap{ObjectMeta: issuedMeta(i.Bundle), Data: data}
	return written(kept, i.API.Create(ctx, kept))
}

// due tells whether a certificate is to be signed anew: it is old, or for other
// hosts, or of another authority, or cannot be read.
func (i *Issuer) due(data map[string][]byte, authority *Authority) bool {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil || string(data[BundleKey]) != string(authority.bundle) {
		return true
	}
	if !i.Clock.Now().Before(pair.Leaf.NotAfter.Add(-leafLife / 3)) {
		return true
	}
	return verify(pair.Leaf, authority.bundle, nil, i.Hosts, i.Clock.Now()) != nil
}

func (i *Issuer) find(ctx context.Context, name types.NamespacedName, into client.Object) (bool, error) {
	err := i.API.Get(ctx, name, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return true, nil
}

// written says what it was that could not be written.
func written(object client.Object, err error) error {
	if err != nil {
		return fmt.Errorf("writing %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func issuedMeta(name types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{LabelIssued: "true"}}
}

func isIssued(object client.Object) bool {
	return object.GetLabels()[LabelIssued] == "true"
}

// encode returns the data of a Secret of type TLS.
func encode(signed *tls.Certificate, authority *Authority) (map[string][]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(signed.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encoding a certificate's key: %w", err)
	}
	var chain []byte
	for _, der := range signed.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       chain,
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		BundleKey:               authority.Bundle(),
	}, nil
}

// repeat does a task, which says when it is to be done again, until the context ends.
func repeat(ctx context.Context, clk clock.WithTicker, task func() time.Duration) error {
	for {
		timer := clk.NewTimer(task())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}
