// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// withoutCredentials returns a kubeconfig that only names the API server.
func (w *world) withoutCredentials(t *testing.T) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	expect.NoError(t, err)
	clear(config.AuthInfos)
	for _, each := range config.Contexts {
		each.AuthInfo = ""
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// inCluster starts kubectl di ui like a pod, and returns its URL.
func (w *world) inCluster(t *testing.T, more ...string) string {
	t.Helper()
	args := []string{"ui", "--in-cluster", "--kubeconfig", w.withoutCredentials(t), "--host", "jobs.example.com", "--host", "localhost"}
	started := w.start(t, "", "", append(args, more...)...)
	started.out.shows(t, "\n")
	_, port, err := net.SplitHostPort(strings.TrimSpace(started.out.String()))
	expect.NoError(t, err)
	return "http://127.0.0.1:" + port
}

// account creates a service account with rights in a namespace, and returns a token of it.
func (w *world) account(t *testing.T, namespace, name string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	expect.NoError(t, w.live.Create(t.Context(), made))
	w.grant(t, namespace, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, rules...)
	request := &authenticationv1.TokenRequest{}
	expect.NoError(t, w.live.SubResource("token").Create(t.Context(), made, request))
	return request.Status.Token
}

// viewing is what a page of jobs takes.
func viewing(more ...string) rbacv1.PolicyRule {
	view := rule(v2alpha1.GroupName, "dijobs", "get")
	view.Verbs = append(append(view.Verbs, "list", "watch"), more...)
	return view
}

// asHost sends each request as a browser that knows the server as a host, behind a proxy that serves TLS.
type asHost struct{ bearer string }

func (h asHost) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = "jobs.example.com"
	if r.Header.Get("Origin") != "" {
		r.Header.Set("Origin", "https://"+r.Host)
	}
	if h.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+h.bearer)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// httpsJar keeps cookies as if requests were sent by TLS.
type httpsJar struct{ http.CookieJar }

func (j httpsJar) own(*url.URL) *url.URL {
	return &url.URL{Scheme: "https", Host: "jobs.example.com", Path: "/"}
}

func (j httpsJar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	j.CookieJar.SetCookies(j.own(u), cookies)
}

func (j httpsJar) Cookies(u *url.URL) []*http.Cookie { return j.CookieJar.Cookies(j.own(u)) }

// visitor returns a browser that has not signed in, or whose proxy sends a token.
func visitor(t *testing.T, base, bearer string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	expect.NoError(t, err)
	spec, err := openapi3.NewLoader().LoadFromFile("internal/ui/openapi.yaml")
	expect.NoError(t, err)
	return &browser{Client: &http.Client{Jar: httpsJar{jar}, Timeout: testkit.Patience, Transport: asHost{bearer}}, base: base, spec: spec}
}

// signIn posts the form.
func (b *browser) signIn(t *testing.T, token, namespace string) answer {
	t.Helper()
	form := url.Values{"token": {token}, "namespace": {namespace}}
	return b.do(t, http.MethodPost, b.base+"/login", form.Encode(), map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", "Origin": b.base,
	})
}

func (b *browser) signedIn(t *testing.T, token, namespace string) *browser {
	t.Helper()
	if got := b.signIn(t, token, namespace); got.code != http.StatusOK || !strings.Contains(string(got.body), "<script") {
		t.Fatalf("signing in: status %d: %s", got.code, got.body)
	}
	return b
}

// syncedJobs returns the names of all jobs that a browser shows.
func (b *browser) syncedJobs(t *testing.T) string {
	t.Helper()
	page := until(t, b, b.listen(t, "/api/v1/jobs/stream?sort=name"), "page", "JobPage", isSynced)
	var names []string
	for i := range page.Items {
		names = append(names, page.Items[i].Namespace+"/"+page.Items[i].Name)
	}
	return strings.Join(names, " ")
}

func TestInAClusterEachCallerSeesAndChangesWithTheirOwnRights(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	here, there := w.namespace(t), w.namespace(t)
	job, other := w.scalable(t, here, "pong", nil), w.scalable(t, there, "breakout", nil)
	base := w.inCluster(t)
	ada := visitor(t, base, "").signedIn(t, w.account(t, here, "ada", viewing("patch")), "")
	eve := visitor(t, base, "").signedIn(t, w.account(t, there, "eve", viewing()), there)
	if got := ada.syncedJobs(t); got != here+"/pong" {
		t.Errorf("ada sees %s", got)
	}
	if got := eve.syncedJobs(t); got != there+"/breakout" {
		t.Errorf("eve sees %s", got)
	}
	var session api.Session
	ada.get(t, "/api/v1/session", "Session", &session)
	if session.User != "system:serviceaccount:"+here+":ada" || session.Namespace != here || session.AllNamespaces || !session.CanSignOut {
		t.Errorf("the session of ada is %+v", session)
	}
	ada.acted(t, job, "suspend", `{"dryRun": false}`)
	var now v2alpha1.DIJob
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), &now))
	if now.Spec.Suspend == nil || !*now.Spec.Suspend {
		t.Errorf("the job of ada is %+v", now.Spec)
	}
	code, refusal := eve.post(t, jobPath(other)+"/actions/suspend", `{"dryRun": false}`)
	if want := "system:serviceaccount:" + there + ":eve"; code != http.StatusForbidden || !strings.Contains(string(refusal), want) {
		t.Errorf("eve is refused by status %d: %s", code, refusal)
	}
	eve.refused(t, jobPath(job), http.StatusForbidden)
	if got := eve.signIn(t, "wrong", ""); got.code != http.StatusUnauthorized {
		t.Errorf("a wrong token: status %d: %s", got.code, got.body)
	}
}

func TestInAClusterAProxyMaySendTheTokenOfEachRequest(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.scalable(t, ns, "pong", nil)
	base := w.inCluster(t)
	w.grant(t, ns, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "gast-" + ns}, viewing())
	token := w.account(t, "default", "gast-"+ns)
	gast := visitor(t, base, token)
	if message := gast.refused(t, "/api/v1/jobs", http.StatusForbidden); !strings.Contains(message, "may not list the jobs of namespace default") {
		t.Errorf("without a namespace: %q", message)
	}
	gast.signedIn(t, "", ns)
	if got := gast.syncedJobs(t); got != ns+"/pong" {
		t.Errorf("the jobs are %s", got)
	}
	var session api.Session
	if gast.get(t, "/api/v1/session", "Session", &session); session.CanSignOut {
		t.Error("a caller of a proxy can sign out")
	}
	// The same browser without the header is unknown.
	gast.Transport = asHost{}
	gast.refused(t, "/api/v1/jobs", http.StatusUnauthorized)
}

func TestInAClusterNoOneIsServedWithoutAToken(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	base := w.inCluster(t)
	b := visitor(t, base, "")
	b.refused(t, "/api/v1/jobs", http.StatusUnauthorized)
	b.refused(t, "/api/v1/session", http.StatusUnauthorized)
	if got := b.do(t, http.MethodGet, base+"/", "", nil); got.code != http.StatusOK || !strings.Contains(string(got.body), `action="/login"`) {
		t.Errorf("the page without a token: %+v", got)
	}
	if got := b.signIn(t, "<script>", ""); got.code != http.StatusUnauthorized || strings.Contains(string(got.body), "<script>") {
		t.Errorf("a token that is none: status %d: %s", got.code, got.body)
	}
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded"}
	if got := b.do(t, http.MethodPost, base+"/login", "token=x", form); got.code != http.StatusForbidden {
		t.Errorf("a form without an origin: status %d", got.code)
	}
	direct := &browser{Client: &http.Client{Timeout: testkit.Patience}, base: base, spec: b.spec}
	if got := direct.do(t, http.MethodGet, base+"/login", "", nil); got.code != http.StatusForbidden {
		t.Errorf("another host: status %d", got.code)
	}
	if got := direct.do(t, http.MethodGet, base+"/healthz", "", nil); got.code != http.StatusNoContent {
		t.Errorf("the probe: status %d", got.code)
	}
}

func TestInAClusterACallerWhoIsRemovedIsSignedOut(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := visitor(t, w.inCluster(t), "").signedIn(t, w.account(t, ns, "mallory", viewing()), "")
	events := b.listen(t, "/api/v1/jobs/stream")
	expect.NoError(t, w.live.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mallory"}}))
	timeout := time.After(testkit.Patience)
	for isOpen := true; isOpen; {
		select {
		case _, isOpen = <-events:
		case <-timeout:
			t.Fatal("the stream of the removed caller goes on")
		}
	}
	expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(context.Context) (bool, error) {
		return b.do(t, http.MethodGet, b.base+"/api/v1/jobs", "", nil).code == http.StatusUnauthorized, nil
	}))
}

func TestInAClusterSigningOutEndsTheSession(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := visitor(t, w.inCluster(t), "").signedIn(t, w.account(t, ns, "ada", viewing()), "")
	stolen := b.Jar.Cookies(nil)
	got := b.do(t, http.MethodPost, b.base+"/logout", "", map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Origin": b.base})
	if got.code != http.StatusOK || !strings.Contains(string(got.body), `action="/login"`) || len(b.Jar.Cookies(nil)) > 0 {
		t.Errorf("signing out: %+v, cookies %v", got, b.Jar.Cookies(nil))
	}
	b.Jar.SetCookies(nil, stolen)
	b.refused(t, "/api/v1/jobs", http.StatusUnauthorized)
}

func TestInAClusterTheServerHasNoRightsOfItsOwn(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	got := w.run(t, "", "ui", "--in-cluster", "--host", "jobs.example.com")
	if got.code != cli.Failed || !strings.Contains(got.stderr, "the kubeconfig has credentials") {
		t.Errorf("with credentials: %+v", got)
	}
	for _, tc := range []struct{ args, want string }{
		{"--in-cluster", "no host is given"},
		{"--in-cluster --host https://x", `host "https://x": want a name`},
		{"--in-cluster --host x --open", "--open and --in-cluster"},
		{"--in-cluster --host x --tls-key-file k", "given together"},
		{"--prometheus prometheus:9090", `--prometheus "prometheus:9090": must be a URL such as http://`},
		{"--prometheus http://me:secret@x", "--prometheus: want a URL without a user and a password"},
		{"--host x", "--host and --tls-cert-file are for --in-cluster"},
	} {
		if got := w.run(t, "", append([]string{"ui"}, strings.Fields(tc.args)...)...); got.code != cli.Usage || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%s: %+v", tc.args, got)
		}
	}
}
