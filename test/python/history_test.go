// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package python

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/serve"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// certificateGetter is tls.Config.GetCertificate.
type certificateGetter func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// startHistory serves a history with the certificate of di-server, which remembers a job. It makes a
// token of a reader.
func startHistory(ctx context.Context, t *testing.T, config *rest.Config, live client.Client, certificate certificateGetter, described *world) {
	t.Helper()
	directory := t.TempDir()
	database, err := store.OpenSQLite(ctx, filepath.Join(directory, "history.db"))
	expect.NoError(t, err)
	t.Cleanup(func() { expect.NoError(t, database.Close()) })
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	sample := func(seconds int, reward float64) record.Sample {
		return record.Sample{At: start.Add(time.Duration(seconds) * time.Second), Values: map[string]record.Mean{"reward": {Sum: reward, Count: 1}}}
	}
	expect.NoError(t, database.Write(ctx, []store.Change{{
		UID: "uid", Samples: []record.Sample{sample(10, 1), sample(20, 2.5)},
		Job: &record.Job{
			UID: "uid", Namespace: namespace, Name: "gone", Creator: "jane", Phase: "Failed", Reason: "OOMKilled", Created: start,
			Attempts: []record.Attempt{{Started: start, Reason: "OOMKilled"}},
		},
	}}))
	by, err := rest.HTTPClientFor(config)
	expect.NoError(t, err)
	access, err := serve.NewAccess(config, by)
	expect.NoError(t, err)
	metrics, err := serve.NewMetrics(prometheus.NewRegistry(), clock.RealClock{})
	expect.NoError(t, err)
	served := httptest.NewUnstartedServer(serve.NewHandler(database, access, metrics, testr.New(t)))
	served.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	served.StartTLS()
	t.Cleanup(served.Close)
	_, port, err := net.SplitHostPort(served.Listener.Addr().String())
	expect.NoError(t, err)
	described.HistoryURL, described.TokenFile = "https://localhost:"+port, filepath.Join(directory, "token")
	expect.NoError(t, os.WriteFile(described.TokenFile, []byte(readerOfJobs(ctx, t, live)), 0o600))
}

// readerOfJobs returns a token of a service account that may read jobs.
func readerOfJobs(ctx context.Context, t *testing.T, live client.Client) string {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "reader"}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	for _, object := range []client.Object{
		account,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs"}, Verbs: []string{"get", "list"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: meta.Name}},
		},
	} {
		expect.NoError(t, live.Create(ctx, object))
	}
	request := &authenticationv1.TokenRequest{}
	expect.NoError(t, live.SubResource("token").Create(ctx, account, request))
	return request.Status.Token
}
