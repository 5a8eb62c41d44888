// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/go-logr/logr/funcr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// logged records log lines, and their texts as a sink receives them.
type logged struct {
	mutex sync.Mutex
	lines []string
	texts []string
}

func (l *logged) option(options *Options) {
	options.Log = funcr.New(func(_, line string) {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{Verbosity: 1, RenderArgsHook: l.keep, RenderValuesHook: l.keep})
}

func (l *logged) keep(values []any) []any {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, value := range values {
		if text := fmt.Sprint(value); !strings.HasPrefix(text, "goroutine ") {
			l.texts = append(l.texts, text)
		}
	}
	return values
}

// with returns the lines that contain all parts.
func (l *logged) with(parts ...string) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var found []string
	for _, line := range l.lines {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

// newFaulty creates a coordinator-led job that fails every request for replicas.
func (m *memory) newFaulty(t *testing.T) {
	t.Helper()
	job := m.newCoordinatorLed(t)
	job.Spec.Tasks[1].Template = v2alpha1.RawObject{}
	job.Spec.Tasks[1].Template.Raw = []byte(`{"spec":{"containers":"none"}}`)
	expect.NoError(t, m.objects.Update(t.Context(), job))
}

func ask(t *testing.T, server *Server, method, path, body string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	request.Method, request.URL.Path = method, path
	server.Handler().ServeHTTP(httptest.NewRecorder(), request)
}

func TestLinesThatOneJobCausesAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests = 45
		store, log := newMemory(t), &logged{}
		store.newFaulty(t)
		server := newMemoryServer(t, store, log.option)
		for range requests {
			ask(t, server, http.MethodPost, replicasPath, asking(1))
		}
		const perJob = 10
		if got := len(log.with("Request failed")); got != perJob {
			t.Errorf("%d requests cause %d lines, want %d", requests, got, perJob)
		}
		mustPass(t, time.Minute)
		ask(t, server, http.MethodPost, replicasPath, asking(1))
		if got := log.with("Request failed", fmt.Sprintf(`"leftOut"=%d`, requests-perJob)); len(got) != 1 {
			t.Errorf("got %q, want a line that counts those left out", got)
		}
	})
}

func TestWhatCallersChooseForgesNoLine(t *testing.T) {
	t.Parallel()
	const forged = "x\n2030-01-01 INFO Write: done\r\x1b[2K\u202e\u2028\x9b"
	store, log := newMemory(t), &logged{}
	store.newFaulty(t)
	server := newMemoryServer(t, store, log.option)
	for _, path := range []string{"/" + forged, replicasPath, "/v2alpha1/" + forged + "/replicas", "/v2alpha1/job/ns." + forged + "/replicas"} {
		for _, method := range []string{http.MethodPost, http.MethodGet, "BREW" + forged} {
			ask(t, server, method, path, forged)
			ask(t, server, method, path, fmt.Sprintf(`{"namespace":%q,"coordinator":%q}`, forged, forged))
			ask(t, server, method, path+strings.Repeat("y", 1<<20), forged)
		}
	}
	server.log.http().Print("http: TLS handshake error from " + forged)
	if len(log.with(`INFO Write: done`)) == 0 {
		t.Error("nothing is logged of what was sent")
	}
	for _, text := range log.texts {
		if len(text) > 5*maxLogged || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a line has %.200q", text)
		}
	}
}
