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
	// issueInterval is the interval between checks whether the issued certificate is missing or
	// due.
	issueInterval = 10 * time.Minute
	// issueRetry is the delay before a retry after a failure.
	issueRetry = 10 * time.Second
	// trustTime is the time that clients have to learn a new authority before it serves. The
	// kubelet updates a ConfigMap in pods within two minutes: its sync period and the TTL of its
	// cache.
	trustTime = 10 * time.Minute
	// followTime is how long after its signature a certificate is certainly served. Readers whose
	// read failed twice have read it by then.
	followTime = 3 * readInterval

	// LabelIssued marks the Secrets and ConfigMaps that an Issuer writes. It does not change
	// others.
	LabelIssued = "diengine.opendilab.org/issued"
	// BundleKey is the key of the CA bundle, in the Secret of an issued certificate and in a
	// ConfigMap of its own.
	BundleKey = "ca.crt"
	// AnnotationTrustedSince is an annotation of a ConfigMap that an Issuer writes. It records when
	// the current authority was added to the bundle.
	AnnotationTrustedSince = "diengine.opendilab.org/trusted-since"
)

// Issuer issues a certificate for a program that may not read the authority's key. A Secret
// contains the certificate and its key, and is reissued after two thirds of its lifetime. A
// ConfigMap contains the CA bundle for clients, and nothing secret.
type Issuer struct {
	// API reads and writes without a cache.
	API client.Client
	// Authority is the Secret of the authority, which the webhooks create. If it is empty, another
	// tool issues the certificate. In that case the Issuer only copies its ca.crt to Bundle.
	Authority types.NamespacedName
	// Secret and Bundle are the Secret and the ConfigMap that the Issuer writes.
	Secret, Bundle types.NamespacedName
	// Hosts are the host names of the certificate.
	Hosts []string
	// Clock is the source of time and triggers the issuer.
	Clock clock.WithTicker
	// Log logs errors that are retried.
	Log logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader issues.
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

// Issue brings the Secret and the ConfigMap up to date once. It does not change objects of another
// owner. After a rotation it first publishes the new authority beside the old one. After trustTime
// the new authority signs the serving certificate. After another followTime it removes the old
// authority.
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
		// Clients may not have learned the new authority yet.
		return bundleErr
	}
	return errors.Join(bundleErr, i.issueLeaf(ctx, exists, kept, authority))
}

// copyBundle publishes the CA bundle of a certificate that another tool issues.
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

// standing is the state of an issued certificate.
type standing struct {
	// usable reports whether clients that trust its issuer accept it.
	usable bool
	// due reports whether it must be reissued.
	due bool
	// followed reports whether the current authority has signed it, and no server uses a
	// certificate of another authority anymore.
	followed bool
}

// judge returns the state of a Secret's certificate at a time. The certificate is due if it is old,
// has other hosts or another authority, or cannot be read.
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

// isFollowed reports whether all servers have read the certificate by now.
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

// issueBundle publishes the CA bundle for clients, and returns since when it contains the current
// authority. It returns the zero time if that is unknown, or if another owner publishes the bundle.
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
	// An invalid annotation counts as long ago.
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

// written adds the object to the error of a write.
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

// repeat runs a task until the context ends. The task returns the delay until its next run.
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
