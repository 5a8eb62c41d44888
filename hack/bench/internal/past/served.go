// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// User is who the history is for the API server, and reader who reads it.
const (
	User   = "bench-history"
	reader = "bench-reader"
)

// The Secret of the certificate, and the ConfigMap of its authority, as the programs expect them.
const certificate, authority = "di-orchestrator-server-tls", "di-orchestrator-server-ca"

// Served is a history that is served, and an API server that knows its callers.
type Served struct {
	*controlplane.Plane
	*program.Process
	Reader *Reader
}

// Options are those of a history.
type Options struct {
	// Folder has the files and logs, and Binary is the program.
	Folder, Binary string
	// Configuration has sections of the configuration, and Flags name the database.
	Configuration string
	Flags         []string
	// Prepare is called before the history starts; nil for nothing.
	Prepare func(context.Context, *controlplane.Plane) error
}

// Serve starts an API server and a history.
func Serve(ctx context.Context, o *Options) (*Served, error) {
	plane, err := controlplane.Start(&controlplane.Options{
		Folder: o.Folder, Users: []string{User}, Etcd: map[string]string{"quota-backend-bytes": "8589934592", "unsafe-no-fsync": "true"},
	})
	if err != nil {
		return nil, err
	}
	s := &Served{Plane: plane}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Served) start(ctx context.Context, o *Options) error {
	if err := s.InstallRights(ctx); err != nil {
		return err
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx, s.Plane); err != nil {
			return err
		}
	}
	roots, host, err := s.issue(ctx)
	if err != nil {
		return err
	}
	token, err := s.token(ctx)
	if err != nil {
		return err
	}
	kubeconfig, err := s.Kubeconfig(User)
	if err != nil {
		return err
	}
	s.Process, err = program.Start(ctx, &program.Command{
		Binary: o.Binary, Name: "history", Folder: o.Folder, Environment: []string{kubeconfig, "GOMEMLIMIT=460MiB"}, Configuration: o.Configuration,
		Flags: func(address string) []string { return append([]string{"--address", address}, o.Flags...) },
	})
	if err != nil {
		return err
	}
	s.Reader = NewReader(s.Address, host, token, roots)
	return nil
}

// issue issues the certificate of the history, as the operator does.
func (s *Served) issue(ctx context.Context) (*x509.CertPool, string, error) {
	of := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: names.SystemNamespace, Name: name}
	}
	host := names.HistoryService + "." + names.SystemNamespace
	issuer := &certs.Issuer{
		API: s.API, Authority: of(names.WebhookAuthority), Secret: of(certificate), Bundle: of(authority),
		Hosts: []string{host}, Clock: clock.RealClock{},
	}
	if _, err := certs.LoadOrCreate(ctx, s.API, issuer.Authority, issuer.Clock); err != nil {
		return nil, "", err
	}
	if err := issuer.Issue(ctx); err != nil {
		return nil, "", err
	}
	var bundle corev1.ConfigMap
	if err := s.API.Get(ctx, issuer.Bundle, &bundle); err != nil {
		return nil, "", fmt.Errorf("reading the authority: %w", err)
	}
	roots := x509.NewCertPool()
	for _, pem := range bundle.Data {
		roots.AppendCertsFromPEM([]byte(pem))
	}
	return roots, host, nil
}

// token returns the token of an account that may read all jobs.
func (s *Served) token(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: reader}}
	if err := s.API.Create(ctx, account); err != nil {
		return "", fmt.Errorf("creating a ServiceAccount: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reader}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	}
	if err := s.API.Create(ctx, binding); err != nil {
		return "", fmt.Errorf("creating a ClusterRoleBinding: %w", err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := s.API.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting a token: %w", err)
	}
	return request.Status.Token, nil
}

// Stop stops the history and the API server.
func (s *Served) Stop() error {
	var err error
	if s.Process != nil && !s.HasEnded() {
		err = s.Kill()
	}
	return errors.Join(err, s.Plane.Stop())
}
