// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"k8s.io/client-go/tools/clientcmd"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// browser is a browser that has opened the page of a running kubectl di ui.
type browser struct {
	*http.Client
	base string
	spec *openapi3.T
}

// browse starts kubectl di ui in a namespace, and opens the URL that it prints.
func (w *world) browse(t *testing.T, namespace string, args ...string) *browser {
	t.Helper()
	printed := w.printedURL(t, namespace, args...)
	jar, err := cookiejar.New(nil)
	expect.NoError(t, err)
	spec, err := openapi3.NewLoader().LoadFromFile("internal/ui/openapi.yaml")
	expect.NoError(t, err)
	b := &browser{Client: &http.Client{Jar: jar, Timeout: testkit.Patience}, base: "http://" + printed.Host, spec: spec}
	response := b.do(t, http.MethodGet, printed.String(), "", nil)
	if response.code != http.StatusOK || response.header.Get("Content-Security-Policy") == "" {
		t.Fatalf("opening %s: %+v", printed, response)
	}
	return b
}

// printedURL starts kubectl di ui in a namespace, and returns the URL that it prints.
func (w *world) printedURL(t *testing.T, namespace string, args ...string) *url.URL {
	t.Helper()
	started := w.start(t, namespace, "", append([]string{"ui"}, args...)...)
	started.out.shows(t, "\n")
	printed, err := url.Parse(strings.TrimSpace(started.out.String()))
	expect.NoError(t, err)
	return printed
}

type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (b *browser) do(t *testing.T, method, address, body string, header map[string]string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	expect.NoError(t, err)
	for name, value := range header {
		if request.Header.Set(name, value); name == "Host" {
			request.Host = value
		}
	}
	response, err := b.Do(request)
	expect.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it was read
	read, err := io.ReadAll(response.Body)
	expect.NoError(t, err)
	return answer{response.StatusCode, response.Header, read}
}

// get reads a path as a value, and compares it with a schema of the API's document.
func (b *browser) get(t *testing.T, path, schema string, into any) {
	t.Helper()
	got := b.do(t, http.MethodGet, b.base+path, "", nil)
	if got.code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, got.code, got.body)
	}
	b.conforms(t, schema, got.body)
	expect.NoError(t, json.Unmarshal(got.body, into))
}

// refused reads a path that must be refused, and returns the message.
func (b *browser) refused(t *testing.T, path string, code int) string {
	t.Helper()
	got := b.do(t, http.MethodGet, b.base+path, "", nil)
	if got.code != code {
		t.Fatalf("%s: status %d: %s", path, got.code, got.body)
	}
	b.conforms(t, "Error", got.body)
	var refusal api.Error
	expect.NoError(t, json.Unmarshal(got.body, &refusal))
	return refusal.Message
}

// post posts a body like the page, and returns the status and the answer.
func (b *browser) post(t *testing.T, path, body string) (int, []byte) {
	t.Helper()
	got := b.do(t, http.MethodPost, b.base+path, body, map[string]string{"X-DI-UI": "1", "Content-Type": "application/json", "Origin": b.base})
	return got.code, got.body
}

// conforms compares a document with a schema.
func (b *browser) conforms(t *testing.T, schema string, document []byte) {
	t.Helper()
	var value any
	expect.NoError(t, json.Unmarshal(document, &value))
	if err := b.spec.Components.Schemas[schema].Value.VisitJSON(value); err != nil {
		t.Errorf("the answer is no %s: %v\n%s", schema, err, document)
	}
}

// event is an event of a stream.
type event struct {
	name string
	data []byte
}

// listen opens a stream, and returns its events.
func (b *browser) listen(t *testing.T, path string) <-chan event {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+path, http.NoBody)
	expect.NoError(t, err)
	response, err := b.Do(request)
	expect.NoError(t, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: status %d", path, response.StatusCode)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	events := make(chan event, 100)
	go func() {
		defer close(events)
		lines, next := bufio.NewReader(response.Body), event{}
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			switch line = bytes.TrimRight(line, "\n"); {
			case len(line) == 0 && next.name != "":
				select {
				case events <- next:
				case <-t.Context().Done():
					return
				}
				next = event{}
			case bytes.HasPrefix(line, []byte("event: ")):
				next.name = string(line[len("event: "):])
			case bytes.HasPrefix(line, []byte("data: ")):
				next.data = bytes.Clone(line[len("data: "):])
			}
		}
	}()
	return events
}

// until waits for an event that is as wanted.
func until[T any](t *testing.T, b *browser, events <-chan event, name, schema string, wanted func(T) bool) T {
	t.Helper()
	last := event{}
	for timeout := time.After(testkit.Patience); ; {
		select {
		case next, isOpen := <-events:
			if !isOpen {
				t.Fatalf("the stream ended; its last event was %s %s", last.name, last.data)
			}
			if last = next; next.name != name {
				continue
			}
			b.conforms(t, schema, next.data)
			var value T
			expect.NoError(t, json.Unmarshal(next.data, &value))
			if wanted(value) {
				return value
			}
		case <-timeout:
			t.Fatalf("no %s is as wanted; the last event was %s %s", name, last.name, last.data)
		}
	}
}

func isSynced(page api.JobPage) bool { return page.Synced }

func TestPageOfJobsIsSortedFilteredAndLive(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	for i := range 5 {
		w.workers(t, ns, fmt.Sprintf("pong-%d", i), v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	}
	w.trainer(t, ns, "cartpole")
	b := w.browse(t, ns)
	events := b.listen(t, "/api/v1/jobs/stream?sort=-name&limit=2&offset=1")
	page := until(t, b, events, "page", "JobPage", isSynced)
	if page.Total != 6 || page.Matching != 6 || len(page.Items) != 2 || page.Items[0].Name != "pong-3" || page.Phases["Pending"] != 6 {
		t.Errorf("the page is %+v", page)
	}
	late := w.workers(t, ns, "pong-9", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	until(t, b, events, "page", "JobPage", func(page api.JobPage) bool { return page.Total == 7 && page.Items[0].Name == "pong-4" })
	w.setStatus(t, late, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Summary = v2alpha1.JobRunning, &v2alpha1.StatusSummary{Reason: "ImagePull"}
	})
	until(t, b, events, "page", "JobPage", func(page api.JobPage) bool { return page.Phases["Running"] == 1 })
	for query, want := range map[string]string{
		"phase=Running": "pong-9", "search=imagepull%20PONG": "pong-9", "search=cartpole&phase=Pending": "cartpole", "sort=name&limit=1": "cartpole",
	} {
		var page api.JobPage
		if b.get(t, "/api/v1/jobs?"+query, "JobPage", &page); len(page.Items) != 1 || page.Items[0].Name != want {
			t.Errorf("%s: the page is %+v", query, page)
		}
	}
	for query, message := range map[string]string{
		"limit=201": `limit "201": want a number from 1 to 200`, "offset=-1": `offset "-1"`, "sort=colour": `sort "colour": want one of`,
		"search=" + strings.Repeat("x", 201): "search has 201 characters",
	} {
		if got := b.refused(t, "/api/v1/jobs?"+query, http.StatusBadRequest); !strings.HasPrefix(got, message) {
			t.Errorf("%s is refused by %q", query, got)
		}
	}
}

func TestSessionNamesTheUserAndWhatHeMayDo(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.grant(t, ns, user("carol"), rule(v2alpha1.GroupName, "dijobs", "list"), rule(v2alpha1.GroupName, "dijobs", "watch"))
	b := w.browse(t, ns, "--as", "carol")
	var session api.Session
	b.get(t, "/api/v1/session", "Session", &session)
	if session.User != "carol" || session.Namespace != ns || session.AllNamespaces || !session.Permissions["listJobs"] ||
		session.Permissions["changeJobs"] || session.Permissions["listNodes"] {
		t.Errorf("the session is %+v", session)
	}
}

func TestPageOfAUserOfOneNamespaceShowsItAndSaysSo(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.grant(t, ns, user("erin"), rule(v2alpha1.GroupName, "dijobs", "list"), rule(v2alpha1.GroupName, "dijobs", "watch"))
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	expect.NoError(t, err)
	config.Contexts[config.CurrentContext].Namespace = ns
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	b := w.browse(t, "", "--kubeconfig", kubeconfig, "--as", "erin")
	var session api.Session
	b.get(t, "/api/v1/session", "Session", &session)
	if session.AllNamespaces || session.Namespace != ns || len(session.Notes) != 1 || !strings.Contains(session.Notes[0], "only those of namespace "+ns) {
		t.Errorf("the session is %+v", session)
	}
	until(t, b, b.listen(t, "/api/v1/jobs/stream"), "page", "JobPage", func(page api.JobPage) bool { return page.Synced && page.Total == 1 })
}

func TestOnlyTheOpenedPageReachesTheServer(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := w.browse(t, ns)
	const jobs = "/api/v1/jobs"
	stranger := &browser{Client: &http.Client{Timeout: testkit.Patience}, base: b.base, spec: b.spec}
	if message := stranger.refused(t, jobs, http.StatusUnauthorized); !strings.Contains(message, "kubectl di ui printed") {
		t.Errorf("a stranger is refused by %q", message)
	}
	for name, attack := range map[string]map[string]string{
		"another name of this computer": {"Host": "evil.example:80"},
		"another origin":                {"Origin": "http://evil.example"},
		"no origin":                     {"Origin": "null"},
		"another port":                  {"Origin": "http://127.0.0.1:1"},
		"another site":                  {"Sec-Fetch-Site": "cross-site"},
		"a neighbouring site":           {"Sec-Fetch-Site": "same-site"},
	} {
		if got := b.do(t, http.MethodGet, b.base+jobs, "", attack); got.code != http.StatusForbidden {
			t.Errorf("%s: status %d: %s", name, got.code, got.body)
		}
	}
	for name, header := range map[string]map[string]string{
		"a form":      {"Content-Type": "application/x-www-form-urlencoded"},
		"plain text":  {"Content-Type": "text/plain", "X-DI-UI": "1"},
		"a bare post": {"Content-Type": "application/json"},
	} {
		path := b.base + "/api/v1/namespaces/" + ns + "/jobs/x/actions/delete"
		if got := b.do(t, http.MethodPost, path, `{"dryRun":false}`, header); got.code != http.StatusForbidden && got.code != http.StatusUnsupportedMediaType {
			t.Errorf("%s: status %d: %s", name, got.code, got.body)
		}
	}
}

func TestPrintedURLOpensThePageOnce(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	printed := w.printedURL(t, w.namespace(t))
	b := &browser{Client: &http.Client{Timeout: testkit.Patience, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
	wrong := *printed
	wrong.RawQuery = "token=guess"
	if got := b.do(t, http.MethodGet, wrong.String(), "", nil); got.code != http.StatusUnauthorized {
		t.Errorf("a wrong token: status %d", got.code)
	}
	first := b.do(t, http.MethodGet, printed.String(), "", nil)
	cookie := first.header.Get("Set-Cookie")
	if first.code != http.StatusSeeOther || first.header.Get("Location") != "/" || !strings.Contains(cookie, "HttpOnly") ||
		!strings.Contains(cookie, "SameSite=Strict") || strings.Contains(cookie, printed.Query().Get("token")) {
		t.Errorf("the first time: %+v", first)
	}
	if again := b.do(t, http.MethodGet, printed.String(), "", nil); again.code != http.StatusUnauthorized {
		t.Errorf("the second time: status %d", again.code)
	}
}
