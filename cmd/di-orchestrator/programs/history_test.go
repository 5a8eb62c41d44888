// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/postgres"
)

// remembered is a cluster with the rights of the history, and a certificate for it.
type remembered struct {
	environment *testkit.API
	api         client.Client
	kubeconfigs string
	roots       *x509.CertPool
}

func newRemembered(t *testing.T) *remembered {
	t.Helper()
	environment, err := testkit.StartAPI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	r := &remembered{environment: environment, roots: x509.NewCertPool()}
	quick := rest.CopyConfig(environment.Config)
	quick.QPS, quick.WarningHandler = -1, rest.NoWarnings{}
	if r.api, err = client.New(quick, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"rbac/history/role", "rbac/history/binding", "policy/history", "policy/history-binding"} {
		r.apply(t, filepath.Join(testkit.Root(), "config", file+".yaml"))
	}
	r.kubeconfigs = writeKubeconfigs(t, environment, "history")
	r.issue(t)
	return r
}

func (r *remembered) apply(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := testkit.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := r.api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// issue issues the certificate, as the operator does.
func (r *remembered) issue(t *testing.T) {
	t.Helper()
	of := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: names.SystemNamespace, Name: name}
	}
	issuer := &certs.Issuer{
		API: r.api, Authority: of(names.WebhookAuthority), Secret: of(serverCertificate), Bundle: of(names.ServerBundle),
		Hosts: []string{names.HistoryService + "." + names.SystemNamespace}, Clock: clock.RealClock{},
	}
	_, err := certs.LoadOrCreate(t.Context(), r.api, issuer.Authority, issuer.Clock)
	if err == nil {
		err = issuer.Issue(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	var bundle corev1.ConfigMap
	if err := r.api.Get(t.Context(), issuer.Bundle, &bundle); err != nil {
		t.Fatal(err)
	}
	for _, pem := range bundle.Data {
		r.roots.AppendCertsFromPEM([]byte(pem))
	}
}

func (r *remembered) createJob(t *testing.T, name string) *v2alpha1.DIJob {
	t.Helper()
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	job.Spec.Lifecycle, job.Spec.Tasks = v2alpha1.LifecycleWorkerLed, []v2alpha1.Task{{Name: "worker", Type: v2alpha1.TaskTypeNone}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"ding:2"}]}}`)
	if err := r.api.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return job
}

// reader returns the token of a ServiceAccount that may read jobs.
func (r *remembered) reader(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: historyLease},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := r.api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := r.api.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// get reads a path of the history, by TLS.
func (r *remembered) get(ctx context.Context, address, token, path string) (answer string, err error) {
	return r.ask(ctx, http.MethodGet, address, token, path, "")
}

func (r *remembered) ask(ctx context.Context, method, address, token, path, body string) (answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: r.roots, ServerName: names.HistoryService + "." + names.SystemNamespace, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, content)
	}
	return string(content), err
}

func TestTheHistoryRemembersAJobAfterItIsDeletedAndTheProgramRestarts(t *testing.T) {
	r := newRemembered(t)
	token := r.reader(t)
	database := filepath.Join(t.TempDir(), "history.db")
	startHistory := func() (*process, string) {
		program := start(t, r.kubeconfigs, nil, "history", "--address=127.0.0.1:0", "--metrics-address=0", "--probe-address=0", "--sqlite="+database)
		address := ""
		await(t, "the history is served", func(context.Context) error {
			found := servingLine.FindStringSubmatch(program.log())
			if found == nil {
				return errors.New("no line says so")
			}
			address = found[1]
			return nil
		})
		return program, address
	}
	has := func(address, text string) func(context.Context) error {
		return func(ctx context.Context) error {
			body, err := r.get(ctx, address, token, "/v1alpha1/history/jobs/default/ppo")
			if err == nil && !strings.Contains(body, text) {
				err = errors.New(body)
			}
			return err
		}
	}
	program, address := startHistory()
	job := r.createJob(t, "ppo")
	await(t, "the job is recorded", has(address, `"ding:2"`))
	if err := r.api.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	await(t, "its end is recorded", has(address, `"deleted":true`))
	program.stop(t)
	_, address = startHistory()
	await(t, "it is still known", has(address, `"deleted":true`))
}

// TestTheHistoryKeepsTheLastLinesOfAFailedContainer reads them with the rights of the chart, from a kubelet.
func TestTheHistoryKeepsTheLastLinesOfAFailedContainer(t *testing.T) {
	r := newRemembered(t)
	token := r.reader(t)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "the log of "+r.URL.Path+" has a password=1234\n")
	}))
	t.Cleanup(kubelet.Close)
	node, err := testkit.CreateNode(t.Context(), r.api, kubelet)
	if err != nil {
		t.Fatal(err)
	}
	job := r.createJob(t, "ppo")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "ppo-worker-0", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("DIJob"))},
	}}
	pod.Spec.NodeName, pod.Spec.Containers = node, []corev1.Container{{Name: "di-container", Image: "ding:2"}}
	if err := r.api.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "di-container", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
	}}
	if err := r.api.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	program := start(t, r.kubeconfigs, nil, "history", "--address=127.0.0.1:0", "--metrics-address=0", "--probe-address=0",
		"--sqlite="+filepath.Join(t.TempDir(), "history.db"), configured(t, "history: {logs: {redact: ['password=.*']}}\n"))
	await(t, "the last lines are served", func(ctx context.Context) error {
		found := servingLine.FindStringSubmatch(program.log())
		if found == nil {
			return errors.New("no line says that it serves")
		}
		body, err := r.get(ctx, found[1], token, "/v1alpha1/history/jobs/default/ppo/tails")
		if err == nil && !strings.Contains(body, `"the log of /containerLogs/default/ppo-worker-0/di-container has a [redacted]\n"`) {
			err = errors.New(body)
		}
		return err
	})
	if log := program.log(); !strings.Contains(log, "install metrics-server") || strings.Contains(log, "orbidden") {
		t.Error("the log does not say that usage is not known, or that a right is missing")
	}
	program.stop(t)
}

func TestTheHistoryWaitsForAPostgreSQLThatIsAway(t *testing.T) {
	server, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	connection, err := server.Create(t.Context())
	if err == nil {
		err = server.Halt(t.Context())
	}
	file := filepath.Join(t.TempDir(), "connection")
	if err := errors.Join(err, os.WriteFile(file, []byte(connection+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := newRemembered(t)
	probe := freeAddress(t)
	program := start(t, r.kubeconfigs, nil, "history", "--address=127.0.0.1:0", "--metrics-address=0", "--probe-address="+probe, "--postgres-connection-file="+file)
	answers := func(code int) func(context.Context) error {
		return func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probe+"/readyz", http.NoBody)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err == nil && response.StatusCode != code {
				err = errors.New(response.Status)
			}
			if response != nil {
				err = errors.Join(err, response.Body.Close())
			}
			return err
		}
	}
	await(t, "the log says why", func(context.Context) error {
		if !strings.Contains(program.log(), "Cannot open the database") {
			return errors.New("no line says so")
		}
		return nil
	})
	await(t, "it is not ready", answers(http.StatusInternalServerError))
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "it is ready", answers(http.StatusOK))
	if err := server.Halt(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "it is not ready again", answers(http.StatusInternalServerError))
	program.stop(t)
}
