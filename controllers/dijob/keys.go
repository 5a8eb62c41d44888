// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/workload"
)

// The operator may create and delete Secrets, and reads none. The name of a Secret has a digest of the job's UID, so one
// that exists is the job's.

// createSecrets creates Secrets with keys of ssh. One that exists keeps its keys, which pods of the attempt may have.
func (r *Reconciler) createSecrets(ctx context.Context, secrets []*corev1.Secret) effects {
	done := make(effects, len(secrets))
	for i, secret := range secrets {
		done[i] = r.createSecret(ctx, secret)
	}
	return done
}

func (r *Reconciler) createSecret(ctx context.Context, secret *corev1.Secret) effect {
	keys, err := newKeys()
	if err == nil {
		secret.Data = keys
		err = r.client.Create(ctx, secret)
	}
	// The keys are the pods' alone.
	secret.Data = nil
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return effect{}
	}
	err = fmt.Errorf("creating Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	return effect{object: secret, reason: v2alpha1.ReasonFailedCreate, err: err}
}

// removeSecret deletes a Secret by name. It succeeds if there is none.
func (r *Reconciler) removeSecret(ctx context.Context, secret client.Object) effect {
	if err := client.IgnoreNotFound(r.client.Delete(ctx, secret)); err != nil {
		err = fmt.Errorf("deleting Secret %s/%s: %w", secret.GetNamespace(), secret.GetName(), err)
		return effect{object: secret, reason: v2alpha1.ReasonFailedDelete, err: err}
	}
	return effect{}
}

// newKeys returns a new pair of keys of ssh, as the data of a Secret. It has the type of those of kubeflow's
// mpi-operator, which every release of OpenSSH reads.
func newKeys() (map[string][]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key of ssh: %w", err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encoding a key of ssh: %w", err)
	}
	public, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("encoding a public key of ssh: %w", err)
	}
	return map[string][]byte{
		corev1.SSHAuthPrivateKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
		workload.SSHPublicKey:    ssh.MarshalAuthorizedKey(public),
	}, nil
}
