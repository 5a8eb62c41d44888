// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// readInterval is the interval between reads of an issued certificate. It is much shorter than
	// the certificate's renewal interval.
	readInterval = 5 * time.Minute
	// readRetry is the delay before a missing certificate is read again.
	readRetry = 5 * time.Second
)

// Issued serves with the certificate that an Issuer, or another tool, keeps in a Secret of type
// TLS.
type Issued struct {
	// API reads without a cache.
	API client.Reader
	// Secret contains the certificate.
	Secret types.NamespacedName
	// Clock triggers the reads.
	Clock clock.WithTicker
	// Log logs that there is no certificate.
	Log logr.Logger

	current atomic.Pointer[tls.Certificate]
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica reads.
func (*Issued) NeedLeaderElection() bool {
	return false
}

// Start implements manager.Runnable: it reads until the context ends. If a certificate cannot be
// read, the previous one stays in use.
func (i *Issued) Start(ctx context.Context) error {
	return repeat(ctx, i.Clock, func() time.Duration {
		if err := i.Read(ctx); err != nil {
			i.Log.Info("Serving certificate is missing or outdated", "secret", i.Secret.String(), "reason", err.Error())
			return readRetry
		}
		return readInterval
	})
}

// Read reads the certificate once.
func (i *Issued) Read(ctx context.Context) error {
	var secret corev1.Secret
	if err := i.API.Get(ctx, i.Secret, &secret); err != nil {
		return fmt.Errorf("reading Secret %s: %w", i.Secret, err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("decoding the certificate of Secret %s: %w", i.Secret, err)
	}
	i.current.Store(&pair)
	return nil
}

// GetCertificate implements the callback of tls.Config.
func (i *Issued) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current := i.current.Load()
	if current == nil {
		return nil, errors.New("no certificate was issued yet")
	}
	return current, nil
}
