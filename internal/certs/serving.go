// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/certs/record"
)

// Serving is a serving certificate and the CA bundle that must be published for it.
type Serving struct {
	// Bundle is the CA bundle, as PEM.
	Bundle []byte

	leaf  func() (*tls.Certificate, error)
	hosts []string
	clock clock.PassiveClock
	// data is the data of the Secret it was read from; nil if there is none.
	data map[string][]byte
	// secret is what only replicas with the same authority, or certificate, know.
	secret []byte
}

// PathToken returns the token of guarded paths. Replicas that serve by the same authority, or with the same
// certificate, have the same token.
func (s *Serving) PathToken() string {
	hash := hmac.New(sha256.New, s.secret)
	hash.Write([]byte("guarded paths"))
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// Certificate returns the current serving certificate.
func (s *Serving) Certificate() (*tls.Certificate, error) {
	return s.leaf()
}

// Verify returns an error unless a client that trusts only the bundle accepts the serving
// certificate for each host.
func (s *Serving) Verify() error {
	certificate, err := s.leaf()
	if err != nil {
		return err
	}
	return verifyChain(certificate, s.Bundle, s.hosts, s.clock.Now())
}

// verifyChain is verify with the intermediates of the certificate.
func verifyChain(certificate *tls.Certificate, bundle []byte, hosts []string, now time.Time) error {
	between := x509.NewCertPool()
	for _, der := range certificate.Certificate[1:] {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(parsed)
		}
	}
	return verify(certificate.Leaf, bundle, between, hosts, now)
}

// Own serves with certificates that each replica signs for itself, by an authority that is stored
// in a Secret.
type Own struct {
	// API reads, writes and watches without a cache.
	API client.WithWatch
	// Secret contains the authority; the first replica creates it.
	Secret types.NamespacedName
	// Hosts are the host names of the certificates.
	Hosts []string
	// Clock is the source of time for renewals.
	Clock clock.WithTicker
	// Replica is the name that identifies this replica to the others.
	Replica string
}

// Next returns the serving certificate once the Secret contains another authority than the current
// one. Renewed certificates keep the authority. If the Secret was deleted, Next recreates an
// authority.
func (o *Own) Next(ctx context.Context, current *Serving) (*Serving, error) {
	for {
		authority, err := LoadOrCreate(ctx, o.API, o.Secret, o.Clock)
		if err != nil {
			return nil, err
		}
		if current == nil || !bytes.Equal(current.Bundle, authority.bundle) {
			return o.serve(authority)
		}
		err = waitOther(ctx, o.API, o.Secret, o.Clock, func(secret *corev1.Secret) bool {
			_, asked := secret.Annotations[record.AnnotationRotate]
			return !asked && bytes.Equal(current.Bundle, secret.Data[corev1.TLSCertKey])
		})
		if err != nil {
			return nil, err
		}
	}
}

func (o *Own) serve(authority *Authority) (*Serving, error) {
	leaf, err := NewLeaf(authority, o.Hosts, o.Clock)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalECPrivateKey(authority.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the authority's key: %w", err)
	}
	return &Serving{Bundle: authority.Bundle(), leaf: leaf.Certificate, hosts: o.Hosts, clock: o.Clock, secret: key}, nil
}

// Kept serves with the certificate that another tool, such as cert-manager, keeps in a Secret of
// type TLS, with its authority under ca.crt.
type Kept struct {
	// API reads and watches without a cache.
	API client.WithWatch
	// Secret contains the certificate.
	Secret types.NamespacedName
	// Hosts are the host names that the certificate must have.
	Hosts []string
	// Clock is the source of time for the validity of certificates.
	Clock clock.WithTicker
}

// Next returns the content of the Secret once it differs from the current one. If the Secret is
// missing or unusable it returns an error, and the caller may retry later.
func (k *Kept) Next(ctx context.Context, current *Serving) (*Serving, error) {
	for {
		var secret corev1.Secret
		err := k.API.Get(ctx, k.Secret, &secret)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("Secret %s is not there: whoever issues the webhooks' certificate, such as cert-manager, has to make it", k.Secret) //nolint:staticcheck // a kind begins it
		}
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", k.Secret, err)
		}
		isCurrent := func(secret *corev1.Secret) bool {
			return current != nil && maps.EqualFunc(current.data, served(secret.Data), bytes.Equal)
		}
		if !isCurrent(&secret) {
			return k.decode(secret.Data)
		}
		if err := waitOther(ctx, k.API, k.Secret, k.Clock, isCurrent); err != nil {
			return nil, err
		}
	}
}

// Declare does nothing: the tool that issues the certificate owns its Secret, and never reports
// that an authority was removed.
func (*Kept) Declare(context.Context, *Serving) ([]byte, error) { return nil, nil }

// Leave does nothing, because Declare does nothing.
func (*Kept) Leave(context.Context) error { return nil }

// served returns the keys of a Secret's data that matter for serving; the Secret may have more.
func served(data map[string][]byte) map[string][]byte {
	return map[string][]byte{
		corev1.TLSCertKey: data[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: data[corev1.TLSPrivateKeyKey], BundleKey: data[BundleKey],
	}
}

// decode returns the certificate if it is valid now. Errors name the key.
func (k *Kept) decode(data map[string][]byte) (*Serving, error) {
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, BundleKey} {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("Secret %s has nothing under %s: want %s, %s and %s, as an issuer writes them that tells its own certificate", //nolint:staticcheck // a kind begins it
				k.Secret, key, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, BundleKey)
		}
	}
	if _, err := splitBundle(data[BundleKey]); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %s: %w", k.Secret, BundleKey, err)
	}
	if _, err := splitBundle(data[corev1.TLSCertKey]); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %s: %w", k.Secret, corev1.TLSCertKey, err)
	}
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %s is not the key of %s: %w", k.Secret, corev1.TLSPrivateKeyKey, corev1.TLSCertKey, err)
	}
	if err := verifyChain(&pair, data[BundleKey], k.Hosts, k.Clock.Now()); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %s, by the authority of %s: %w", k.Secret, corev1.TLSCertKey, BundleKey, err)
	}
	return &Serving{
		Bundle: data[BundleKey], leaf: func() (*tls.Certificate, error) { return &pair, nil },
		hosts: k.Hosts, clock: k.Clock, data: served(data), secret: data[corev1.TLSPrivateKeyKey],
	}, nil
}

// watchPause is the minimum delay between the end of a watch and the next one.
const watchPause = time.Second

// waitOther waits until the Secret is deleted or its content differs from the current one. It may
// return early, because API servers end watches from time to time.
func waitOther(ctx context.Context, api client.WithWatch, name types.NamespacedName, clk clock.WithTicker, isCurrent func(*corev1.Secret) bool) error {
	// The watch starts with the current Secret and names no resource version, because the API
	// server forgets the version of a Secret that has not been written for a long time.
	watching, err := api.Watch(ctx, &corev1.SecretList{}, client.InNamespace(name.Namespace), client.MatchingFields{metav1.ObjectNameField: name.Name})
	if err != nil {
		return fmt.Errorf("watching Secret %s: %w", name, err)
	}
	defer watching.Stop()
	// The watch does not report a Secret that was deleted before it began.
	secret := &corev1.Secret{}
	switch err := api.Get(ctx, name, secret); {
	case apierrors.IsNotFound(err), err == nil && !isCurrent(secret):
		return nil
	case err != nil:
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	for {
		select {
		case event, open := <-watching.ResultChan():
			if !open {
				return pause(ctx, clk)
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watching Secret %s: %w", name, apierrors.FromObject(event.Object))
			}
			secret, isSecret := event.Object.(*corev1.Secret)
			if isSecret && (event.Type == watch.Deleted || !isCurrent(secret)) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause prevents a busy loop of watches that end at once.
func pause(ctx context.Context, clk clock.WithTicker) error {
	timer := clk.NewTimer(watchPause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
