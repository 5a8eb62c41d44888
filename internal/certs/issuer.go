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
	// trustTime is how long clients are left to learn of an authority before it is
	// served by: the kubelet brings a ConfigMap that has changed into pods within two
	// minutes (its sync period and the life of its cache).
	trustTime = 10 * time.Minute
	// followTime is how long after it was signed a certificate is certainly served:
	// readers that failed twice have read it.
	followTime = 3 * readInterval

	// LabelIssued marks the Secrets and ConfigMaps that an Issuer writes; of
	// others it keeps its hands off.
	LabelIssued = "diengine.opendilab.org/issued"
	// BundleKey is the key of the certificates to trust, beside an issued
	// certificate and in a ConfigMap of their own.
	BundleKey = "ca.crt"
	// AnnotationTrustedSince of a ConfigMap that an Issuer writes tells since when the
	// authority by which is served, or will be, is in it.
	AnnotationTrustedSince = "diengine.opendilab.org/trusted-since"
)

// Issuer keeps a certificate for a program that may not have the authority's
// key: in a Secret, with its key, reissued when two thirds of its life are
// over; and in a ConfigMap, which holds nothing secret, what clients are to trust.
type Issuer struct {
	// API reads and writes without a cache.
	API client.Client
	// Authority is the Secret of the authority, which the webhooks create. If it is
	// empty, another tool issues the certificate: then only its ca.crt is copied to Bundle.
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
			i.Log.Error(err, "Cannot issue certificate; retrying", "secret", i.Secret.String())
			return issueRetry
		}
		return issueInterval
	})
}

// Issue brings Secret and ConfigMap up to date once. Those that somebody else
// made are left alone. Where the authority was replaced, clients are told of the
// new one beside the old; trustTime later it has signed what is served; and
// followTime after that the old one is dropped.
func (i *Issuer) Issue(ctx context.Context) error {
	if i.Authority.Name == "" {
		return i.copyBundle(ctx)
	}
	authority, err := loadAuthority(ctx, i.API, i.Authority, i.Clock)
	if err != nil {
		return err
	}
	kept := &corev1.Secret{}
	exists, err := i.find(ctx, i.Secret, kept)
	if err != nil {
		return err
	}
	now := i.Clock.Now()
	stands := i.judge(kept, authority, now)
	since, bundleErr := i.issueBundle(ctx, &Trust{Bundle: authority.Bundle(), KeepOthers: !stands.followed, Now: now})
	switch {
	case exists && !isIssued(kept), stands.usable && !stands.due:
		return bundleErr
	case stands.usable && (bundleErr != nil || now.Sub(since) < trustTime):
		// Clients may not have heard yet of whom they are to trust.
		return bundleErr
	}
	return errors.Join(bundleErr, i.issueLeaf(ctx, exists, kept, authority))
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
	chain, err := splitBundle(kept.Data[corev1.TLSCertKey])
	if err != nil {
		return fmt.Errorf("reading Secret %s: %s: %w", i.Secret, corev1.TLSCertKey, err)
	}
	now := i.Clock.Now()
	_, err = i.issueBundle(ctx, &Trust{Bundle: kept.Data[BundleKey], KeepOthers: !isFollowed(chain[0], now), Now: now})
	return err
}

// standing is how an issued certificate stands.
type standing struct {
	// usable says that clients which trust who signed it accept it.
	usable bool
	// due says that it is to be reissued.
	due bool
	// followed says that the authority has signed it, and that nobody serves by
	// another any more.
	followed bool
}

// judge tells how the certificate of a Secret stands at a time. It is due when it
// is old, or for other hosts, or of another authority, or cannot be read.
func (i *Issuer) judge(kept *corev1.Secret, authority *Authority, now time.Time) standing {
	pair, err := tls.X509KeyPair(kept.Data[corev1.TLSCertKey], kept.Data[corev1.TLSPrivateKeyKey])
	if err != nil || verify(pair.Leaf, kept.Data[BundleKey], nil, i.Hosts, now) != nil {
		return standing{due: true}
	}
	isOfAuthority := verify(pair.Leaf, authority.bundle, nil, i.Hosts, now) == nil
	return standing{
		usable:   true,
		due:      !isOfAuthority || !now.Before(pair.Leaf.NotAfter.Add(-leafLife/3)),
		followed: isOfAuthority && isFollowed(pair.Leaf, now),
	}
}

// isFollowed reports whether all who serve by a certificate have read it by now.
func isFollowed(leaf *x509.Certificate, now time.Time) bool {
	return now.Sub(leaf.NotBefore) >= skew+followTime
}

func (i *Issuer) issueLeaf(ctx context.Context, exists bool, kept *corev1.Secret, authority *Authority) error {
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

// issueBundle tells clients whom to trust, and returns since when they are told so:
// the zero time where it is not known, or where somebody else tells them.
func (i *Issuer) issueBundle(ctx context.Context, trust *Trust) (time.Time, error) {
	kept := &corev1.ConfigMap{}
	exists, err := i.find(ctx, i.Bundle, kept)
	if err != nil || exists && !isIssued(kept) {
		return time.Time{}, err
	}
	if !exists {
		kept.ObjectMeta = issuedMeta(i.Bundle)
	}
	bundle, stands := trust.over([]byte(kept.Data[BundleKey]))
	if stands.missing {
		metav1.SetMetaDataAnnotation(&kept.ObjectMeta, AnnotationTrustedSince, trust.Now.UTC().Format(time.RFC3339))
	}
	// One that somebody spoilt counts as of long ago.
	since, _ := time.Parse(time.RFC3339, kept.Annotations[AnnotationTrustedSince])
	if kept.Data[BundleKey] == string(bundle) {
		return since, nil
	}
	kept.Data = map[string]string{BundleKey: string(bundle)}
	if exists {
		return since, written(kept, i.API.Update(ctx, kept))
	}
	return since, written(kept, i.API.Create(ctx, kept))
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
