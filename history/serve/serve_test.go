// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
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
	"opendilab.org/di-orchestrator/test/testkit"
)

var environment *testkit.API

func TestMain(m *testing.M) { os.Exit(testkit.RunOnAPI(m, &environment)) }

// fixture serves what is recorded of jobs in the namespaces own and other.
type fixture struct {
	*WithT
	t          *testing.T
	api        client.Client
	database   *store.Store
	handler    http.Handler
	registry   *prometheus.Registry
	metrics    *serve.Metrics
	url        string
	own, other string
}

func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t}
	var err error
	f.api, err = client.New(environment.Config, client.Options{})
	f.Expect(err).NotTo(HaveOccurred())
	for _, name := range []*string{&f.own, &f.other} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "history-"}}
		f.Expect(f.api.Create(t.Context(), namespace)).To(Succeed())
		*name = namespace.Name
	}
	f.database, err = store.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "history.db"))
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { f.Expect(f.database.Close()).To(Succeed()) })
	by, err := rest.HTTPClientFor(environment.Config)
	f.Expect(err).NotTo(HaveOccurred())
	access, err := serve.NewAccess(environment.Config, by)
	f.Expect(err).NotTo(HaveOccurred())
	f.registry = prometheus.NewPedanticRegistry()
	f.metrics, err = serve.NewMetrics(f.registry, clock.RealClock{})
	f.Expect(err).NotTo(HaveOccurred())
	f.handler = serve.NewHandler(f.database, access, f.metrics, testr.New(t))
	served := httptest.NewServer(f.handler)
	t.Cleanup(served.Close)
	f.url = served.URL
	for i, namespace := range []string{f.own, f.own, f.other} {
		f.write(namespace, fmt.Sprintf("job-%d", i), i)
	}
	return f
}

func (f *fixture) write(namespace, name string, number int) {
	f.t.Helper()
	uid := fmt.Sprintf("uid-%d", number)
	value := func(reward float64) map[string]record.Mean {
		return map[string]record.Mean{"reward": {Sum: reward, Count: 1}}
	}
	f.Expect(f.database.Write(f.t.Context(), []store.Change{{
		UID:     uid,
		Job:     &record.Job{UID: uid, Namespace: namespace, Name: name, Phase: "Running", Created: at(number), Manifest: []byte("{}")},
		Samples: []record.Sample{{At: at(10), Values: value(1)}, {At: at(20), Values: value(2)}},
		Tails:   []record.Tail{{PodUID: "p", Pod: name + "-0", Container: "main", Ended: at(30), ExitCode: 1, Text: "Killed\n"}},
	}})).To(Succeed())
}

// token returns the token of a new ServiceAccount with rules in a namespace, or in all if it is empty.
func (f *fixture) token(namespace string, rules ...rbacv1.PolicyRule) string {
	f.t.Helper()
	return f.tokenFor(nil, namespace, rules...)
}

func (f *fixture) tokenFor(audiences []string, namespace string, rules ...rbacv1.PolicyRule) string {
	f.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: f.own, GenerateName: "reader-"}}
	f.Expect(f.api.Create(f.t.Context(), account)).To(Succeed())
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: f.own, Name: account.Name}}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: account.Name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account.Name}
	objects := []client.Object{&rbacv1.Role{ObjectMeta: meta, Rules: rules}, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}}
	if namespace == "" {
		ref.Kind = "ClusterRole"
		objects = []client.Object{&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}}
	}
	for _, object := range objects {
		f.Expect(f.api.Create(f.t.Context(), object)).To(Succeed())
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	f.Expect(f.api.SubResource("token").Create(f.t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

func onJobs(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs"}, Verbs: verbs}
}

func onLogs() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}}
}

// get returns the code and the body of an answer.
func (f *fixture) get(token, path string) (int, string) {
	f.t.Helper()
	return f.getFrom(record.Root, token, path)
}

func (f *fixture) getFrom(root, token, path string) (int, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.url+root+path, http.NoBody)
	f.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	f.Expect(err).NotTo(HaveOccurred())
	body, err := io.ReadAll(response.Body)
	f.Expect(errors.Join(err, response.Body.Close())).To(Succeed())
	return response.StatusCode, string(body)
}

// read decodes an answer that must succeed.
func (f *fixture) read(token, path string, into any) {
	f.t.Helper()
	code, body := f.get(token, path)
	f.Expect(code).To(Equal(http.StatusOK), body)
	f.Expect(json.Unmarshal([]byte(body), into)).To(Succeed())
}

func TestAReaderSeesTheJobsOfItsNamespace(t *testing.T) {
	f := setUp(t)
	token := f.token(f.own, onJobs("get", "list"), onLogs())

	var page record.Page
	f.read(token, "?namespace="+f.own+"&limit=1", &page)
	f.Expect(page.Jobs).To(HaveLen(1))
	f.Expect(page.Jobs[0].Name).To(Equal("job-1"))
	from := page.Next
	page = record.Page{}
	f.read(token, "?namespace="+f.own+"&from="+from, &page)
	f.Expect(page.Jobs).To(HaveLen(1))
	f.Expect(page.Jobs[0].Name).To(Equal("job-0"))
	f.Expect(page.Next).To(BeEmpty())
	page = record.Page{}
	f.read(token, "?namespace="+f.own+"&since=2026-03-01T00:00:01Z&phase=Running&text=JOB", &page)
	f.Expect(page.Jobs).To(HaveLen(1))

	var job record.Job
	f.read(token, "/"+f.own+"/job-0", &job)
	f.Expect(job.UID).To(Equal("uid-0"))

	var curves record.CurvePage
	f.read(token, "/"+f.own+"/job-0/series?uid=uid-0&after=2026-03-01T00:00:10Z", &curves)
	f.Expect(curves.Series).To(HaveLen(1))
	f.Expect(curves.Series[0].Points).To(Equal([]record.Point{{At: at(20), Value: 2}}))

	curves = record.CurvePage{}
	f.read(token, "/"+f.own+"/job-0/series?uid=uid-0&points=1", &curves)
	f.Expect(curves.Series).To(HaveLen(1))
	f.Expect(curves.Series[0].Points).To(HaveLen(1))
	f.Expect(curves.Series[0].Points[0].Value).To(Equal(1.5))

	var tails record.TailList
	f.read(token, "/"+f.own+"/job-0/tails", &tails)
	f.Expect(tails.Tails).To(HaveLen(1))
	f.Expect(tails.Tails[0].Text).To(Equal("Killed\n"))
}

func TestSumsNeedTheRightToListTheJobsInThem(t *testing.T) {
	f := setUp(t)
	var changes []store.Change
	for i, namespace := range []string{f.own, f.own, f.other} {
		job := record.Job{UID: fmt.Sprintf("ended-%d", i), Namespace: namespace, Name: "ended", Creator: "ada", Phase: "Succeeded", Created: at(0), Started: at(3600), Ended: at(7200)}
		changes = append(changes, store.Change{UID: job.UID, Job: &job})
	}
	f.Expect(f.database.Write(t.Context(), changes)).To(Succeed())
	span := "&since=" + at(0).Format(time.RFC3339) + "&until=" + at(7200).Format(time.RFC3339)
	own, all := f.token(f.own, onJobs("list")), f.token("", onJobs("list"))
	jobs := func(token, query string) int64 {
		code, body := f.getFrom(record.PathSums, token, query)
		f.Expect(code).To(Equal(http.StatusOK), body)
		var list record.SumList
		f.Expect(json.Unmarshal([]byte(body), &list)).To(Succeed())
		f.Expect(list.Sums).To(HaveLen(1))
		f.Expect(list.Sums[0].Key).To(Equal("ada"))
		f.Expect(list.Sums[0].Waited).To(BeNumerically("~", list.Sums[0].Jobs, 1e-9), "an hour each")
		return list.Sums[0].Jobs
	}
	f.Expect(jobs(own, "?by=user&namespace="+f.own+span)).To(BeEquivalentTo(2))
	f.Expect(jobs(all, "?by=user&namespace="+f.other+span)).To(BeEquivalentTo(1))
	for query, code := range map[string]int{
		"?by=user&namespace=" + f.other: http.StatusForbidden,
		"?by=user":                      http.StatusForbidden,
		"?by=name&namespace=" + f.own:   http.StatusBadRequest,
		"?namespace=" + f.own:           http.StatusBadRequest,
		"?by=day&namespace=" + f.own + "&since=1970-01-01T00:00:00Z": http.StatusBadRequest,
		"?by=user&namespace=" + f.own + "&daily=weekly":              http.StatusBadRequest,
		"?by=day&namespace=" + f.own + "&until=now":                  http.StatusBadRequest,
	} {
		got, body := f.getFrom(record.PathSums, own, query)
		f.Expect(got).To(Equal(code), query+": "+body)
	}
	code, _ := f.getFrom(record.PathSums, "", "?by=user")
	f.Expect(code).To(Equal(http.StatusUnauthorized))
}

func TestWithoutARightAJobDoesNotExist(t *testing.T) {
	f := setUp(t)
	token := f.token(f.own, onJobs("get", "list"))
	for _, suffix := range []string{"", "/series", "/tails", "?uid=uid-2", "/tails?uid=uid-2"} {
		path, query, _ := strings.Cut(suffix, "?")
		code, hidden := f.get(token, "/"+f.other+"/job-2"+path+"?"+query)
		f.Expect(code).To(Equal(http.StatusNotFound))
		// What does not exist is answered with the same words.
		code, missing := f.get(token, "/"+f.other+"/job-9"+path+"?"+query)
		f.Expect(code).To(Equal(http.StatusNotFound))
		f.Expect(strings.ReplaceAll(missing, "job-9", "job-2")).To(Equal(hidden))
	}
	// A UID of another namespace is not found by a name of the own one.
	for _, name := range []string{"job-0", "job-2"} {
		code, body := f.get(token, "/"+f.own+"/"+name+"?uid=uid-2")
		f.Expect(code).To(Equal(http.StatusNotFound), body)
	}
	for _, query := range []string{"", "?namespace=" + f.other} {
		code, body := f.get(token, query)
		f.Expect(code).To(Equal(http.StatusForbidden))
		f.Expect(body).NotTo(ContainSubstring("job-2"))
	}
	code, body := f.get(token, "/"+f.own+"/job-0/tails")
	f.Expect(code).To(Equal(http.StatusNotFound), body)
	// The operator of the cluster can tell them apart.
	f.Expect(f.requests("hidden")).To(BeEquivalentTo(11))
	f.Expect(f.requests("missing")).To(BeEquivalentTo(2))
	f.Expect(f.requests("forbidden")).To(BeEquivalentTo(2))
}

// requests returns how many requests had an outcome.
func (f *fixture) requests(outcome string) float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	count := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if labels := metric.GetLabel(); family.GetName() == "di_orchestrator_history_requests_total" && labels[0].GetValue() == outcome {
				count += metric.GetCounter().GetValue()
			}
		}
	}
	return count
}

func TestWhoMayListTheClusterSeesAllNamespaces(t *testing.T) {
	f := setUp(t)
	var page record.Page
	f.read(f.token("", onJobs("list")), "", &page)
	f.Expect(page.Jobs).To(HaveLen(3))
}

func TestARoleMayNameTheJob(t *testing.T) {
	f := setUp(t)
	rule := onJobs("get")
	rule.ResourceNames = []string{"job-1"}
	token := f.token(f.own, rule)
	f.read(token, "/"+f.own+"/job-1", &record.Job{})
	code, _ := f.get(token, "/"+f.own+"/job-0")
	f.Expect(code).To(Equal(http.StatusNotFound))
}

func TestStrangersAndInvalidRequestsAreRefused(t *testing.T) {
	f := setUp(t)
	for _, token := range []string{"", "x", strings.Repeat("x", 10_000)} {
		for _, path := range []string{"", "/" + f.own + "/job-0"} {
			code, body := f.get(token, path)
			f.Expect(code).To(Equal(http.StatusUnauthorized), body)
		}
	}
	token := f.token("", onJobs("get", "list"))
	for _, query := range []string{
		"?limit=x", "?limit=0", "?limit=100000", "?since=yesterday", "?from=x", "?text=" + strings.Repeat("x", 9000), "?a=%zz",
	} {
		code, body := f.get(token, query)
		f.Expect(code).To(Equal(http.StatusBadRequest), query)
		f.Expect(body).To(ContainSubstring(`"kind":"Status"`))
	}
}

// broken is a database that fails with a secret.
type broken struct{ serve.Store }

func (broken) Job(context.Context, string, string, string) (record.Job, error) {
	return record.Job{}, errors.New("password=secret")
}

func TestFailuresOfTheDatabaseAreNotTold(t *testing.T) {
	f := setUp(t)
	by, err := rest.HTTPClientFor(environment.Config)
	f.Expect(err).NotTo(HaveOccurred())
	access, err := serve.NewAccess(environment.Config, by)
	f.Expect(err).NotTo(HaveOccurred())
	served := httptest.NewServer(serve.NewHandler(broken{}, access, f.metrics, testr.New(t)))
	t.Cleanup(served.Close)
	f.url = served.URL
	code, body := f.get(f.token(f.own, onJobs("get")), "/"+f.own+"/job-0")
	f.Expect(code).To(Equal(http.StatusServiceUnavailable))
	f.Expect(body).NotTo(ContainSubstring("secret"))
}

func TestTheServerServesWithTLSUntilItStops(t *testing.T) {
	f := NewWithT(t)
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	listening := make(chan net.Addr, 1)
	server := &serve.Server{
		Address: "127.0.0.1:0", Log: testr.New(t), Listening: func(at net.Addr) { listening <- at },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &certified.TLS.Certificates[0], nil
		},
	}
	f.Expect(server.Ready(nil)).NotTo(Succeed(), "it is not started")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+(<-listening).String(), http.NoBody)
	f.Expect(server.Ready(nil)).To(Succeed())
	f.Expect(err).NotTo(HaveOccurred())
	response, err := certified.Client().Do(request)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(response.Body.Close()).To(Succeed())
	f.Expect(response.StatusCode).To(Equal(http.StatusTeapot))
	cancel()
	f.Eventually(stopped, testkit.Patience).Should(Receive(BeNil()))
	f.Expect(server.Ready(nil)).NotTo(Succeed(), "it is stopped")
}
