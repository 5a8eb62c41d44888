// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package reader

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/internal/names"
)

// connection is a way to the history that works until it ends, and who uses it.
type connection struct {
	base  string
	end   func()
	http  *http.Client
	token string
	// account is the service account that the token is of; empty if it is the user's own.
	account string
}

// connected returns the connection. It makes a new one if there is none, or if it is the broken one.
func (r *Reader) connected(ctx context.Context, broken *connection) (*connection, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.current != nil && r.current != broken {
		return r.current, nil
	}
	if r.current != nil {
		r.current.end()
		r.current = nil
	}
	// A shared connection outlives the call. Making it does not: others wait for it.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, stop)
	at, end, err := r.way().Open(life)
	if r.Shared {
		release()
	}
	if err != nil {
		stop()
		return nil, r.explain(err)
	}
	made := &connection{base: at, end: func() { end(); release(); stop() }}
	if err = r.trust(ctx, made); err == nil {
		err = r.identify(ctx, made)
	}
	if err != nil {
		made.end()
		return nil, err
	}
	r.current = made
	return made, nil
}

// Connect connects to the history. Otherwise the first call does.
func (r *Reader) Connect(ctx context.Context) error {
	_, err := r.connected(ctx, nil)
	return err
}

// End ends the connection. A later call makes a new one.
func (r *Reader) End() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.current != nil {
		r.current.end()
		r.current = nil
	}
}

func (r *Reader) way() diserver.Way {
	if r.Server != "" {
		return diserver.At(r.Server)
	}
	return r.Cluster.Forward(r.Namespace, cluster.History())
}

// explain says how to switch the history on if it is not.
func (r *Reader) explain(err error) error {
	if missing := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &missing) && missing.Status().Details != nil &&
		missing.Status().Details.Name == names.HistoryService {
		return fmt.Errorf("namespace %s has no history of jobs: switch it on by value history.enabled=true of the Helm chart, or name the "+
			"namespace of the installation by --server-namespace: %w", r.Namespace, err)
	}
	return err
}

// trust gives a connection a client that verifies the certificate of the history.
func (r *Reader) trust(ctx context.Context, made *connection) error {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	switch {
	case r.Authority != "":
		trust.RootCAs, err = authoritiesOf(r.Authority)
	case r.Server == "":
		trust.ServerName = names.HistoryService + "." + r.Namespace + ".svc"
		trust.RootCAs, err = r.published(ctx)
	}
	if err != nil {
		return err
	}
	made.http = &http.Client{
		Timeout: answerTime,
		// Redirects are not followed: only the history may receive the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust},
	}
	end := made.end
	made.end = func() { made.http.CloseIdleConnections(); end() }
	return nil
}

// authoritiesOf reads them from a file.
func authoritiesOf(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading whom to trust: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("reading whom to trust: %s has no certificate", file)
	}
	return authorities, nil
}

// published returns the authorities that the installation publishes.
func (r *Reader) published(ctx context.Context) (*x509.CertPool, error) {
	bundle := &corev1.ConfigMap{}
	if err := r.Cluster.Get(ctx, r.Namespace, names.ServerBundle, bundle); err != nil {
		return nil, fmt.Errorf("reading whom to trust: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(bundle.Data[names.ServerBundleKey])) {
		return nil, fmt.Errorf("ConfigMap %s/%s: %s: has no certificate", r.Namespace, names.ServerBundle, names.ServerBundleKey)
	}
	return authorities, nil
}

// identify gives a connection a token.
func (r *Reader) identify(ctx context.Context, made *connection) (err error) {
	if r.TokenFile != "" {
		content, err := os.ReadFile(r.TokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		if made.token = strings.TrimSpace(string(content)); made.token == "" {
			return fmt.Errorf("--token-file %s: has no token", r.TokenFile)
		}
		return nil
	}
	if made.token, err = r.Cluster.OwnToken(ctx); err != nil || made.token != "" {
		return err
	}
	made.account = r.Cluster.Namespace + "/" + r.Account
	made.token, err = r.Cluster.AccountToken(ctx, r.Cluster.Namespace, r.Account)
	return err
}

// RoleFor returns the role of a right, and who it must be bound to.
func (r *Reader) RoleFor(verb, resource, group, namespace string) string {
	text := cluster.RoleFor(verb, resource, group, namespace, "")
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.current != nil && r.current.account != "" {
		text += "\nthe history knows you as service account " + r.current.account + ", since your kubeconfig has no token: bind it to that, or name another one by --service-account"
	}
	return text
}
