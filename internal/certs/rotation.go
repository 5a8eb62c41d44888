// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"

	"opendilab.org/di-orchestrator/internal/certs/record"
)

const (
	// PreviousKey is the key of the replaced authorities, without their private keys, the latest
	// first.
	PreviousKey = "previous.crt"

	// replicaRefresh is the interval between heartbeats of a replica.
	replicaRefresh = 10 * time.Minute
	// previousCount is the maximum number of replaced authorities that are kept.
	previousCount = 5
)

// ErrReplaced reports that the Secret contains another authority than the one that a replica is
// about to serve with.
var ErrReplaced = errors.New("the certificate authority was replaced meanwhile")

// Declare records the authority of this replica for the others, and returns the authorities that no
// replica serves with anymore, as PEM. It returns ErrReplaced if this replica has no heartbeat yet
// and its authority is not the Secret's. Such a replica must not serve, because the others may have
// removed its authority.
func (o *Own) Declare(ctx context.Context, serving *Serving) (gone []byte, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		gone, err = o.declare(ctx, serving)
		return err
	})
	if err != nil && !errors.Is(err, ErrReplaced) {
		return nil, fmt.Errorf("telling in Secret %s by which authority is served: %w", o.Secret, err)
	}
	return gone, err
}

func (o *Own) declare(ctx context.Context, serving *Serving) ([]byte, error) {
	secret := &corev1.Secret{}
	if err := o.API.Get(ctx, o.Secret, secret); apierrors.IsNotFound(err) {
		return nil, ErrReplaced
	} else if err != nil {
		return nil, err
	}
	me := record.Replica{Name: o.Replica, Authority: record.Fingerprint(serving.Bundle), At: o.Clock.Now()}
	heard, known := record.Parse(me.Name, secret.Annotations[record.ServingPrefix+me.Name])
	isLatest := bytes.Equal(secret.Data[corev1.TLSCertKey], serving.Bundle)
	if !isLatest && (!known || heard.Authority != me.Authority || me.At.Sub(heard.At) > record.ReplicaLife) {
		return nil, ErrReplaced
	}
	if !known || heard.Authority != me.Authority || me.At.Sub(heard.At) >= replicaRefresh {
		forget(secret, me.At)
		secret.Annotations[record.ServingPrefix+me.Name] = me.String()
		if err := o.API.Update(ctx, secret); err != nil {
			return nil, err
		}
	}
	followed := func(other record.Replica) bool { return other.Authority == me.Authority }
	if !isLatest || !all(record.Replicas(secret, me.At), followed) {
		return nil, nil
	}
	return secret.Data[PreviousKey], nil
}

// forget removes the annotations of replicas whose heartbeat has expired.
func forget(secret *corev1.Secret, now time.Time) {
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	counts := record.Replicas(secret, now)
	for key := range secret.Annotations {
		name, told := strings.CutPrefix(key, record.ServingPrefix)
		if told && !slices.ContainsFunc(counts, func(replica record.Replica) bool { return replica.Name == name }) {
			delete(secret.Annotations, key)
		}
	}
}

// Leave records that this replica no longer serves.
func (o *Own) Leave(ctx context.Context) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		secret := &corev1.Secret{}
		if err := o.API.Get(ctx, o.Secret, secret); err != nil {
			return err
		}
		if _, told := secret.Annotations[record.ServingPrefix+o.Replica]; !told {
			return nil
		}
		delete(secret.Annotations, record.ServingPrefix+o.Replica)
		return o.API.Update(ctx, secret)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("telling in Secret %s that nothing is served any more: %w", o.Secret, err)
	}
	return nil
}

// replace stores another authority in a Secret, and keeps the certificates of the previous ones. It
// fulfils a pending request for a rotation.
func replace(secret *corev1.Secret, data map[string][]byte, now time.Time) {
	var previous []*x509.Certificate
	for _, key := range []string{corev1.TLSCertKey, PreviousKey} {
		// Data that does not decode contains no authority.
		before, _ := splitBundle(secret.Data[key])
		previous = append(previous, before...)
	}
	previous = slices.DeleteFunc(previous, func(one *x509.Certificate) bool { return now.After(one.NotAfter) })
	if len(previous) > 0 {
		data[PreviousKey] = joinBundle(previous[:min(len(previous), previousCount)])
	}
	secret.Data = data
	if request, asked := secret.Annotations[record.AnnotationRotate]; asked {
		delete(secret.Annotations, record.AnnotationRotate)
		secret.Annotations[record.AnnotationRotated] = request
	}
}

func all(replicas []record.Replica, hold func(record.Replica) bool) bool {
	return !slices.ContainsFunc(replicas, func(replica record.Replica) bool { return !hold(replica) })
}
