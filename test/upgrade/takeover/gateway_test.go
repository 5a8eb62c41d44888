// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/set"
)

// jobs is the namespace of the jobs.
const jobs = "training"

// ledger knows what programs write, so that a test can kill who writes, and sees who
// writes too early.
type ledger struct {
	// mayAct says that nothing of the earlier release acts any more.
	mayAct atomic.Bool
	// looks counts how often somebody looked for Deployments of an earlier release.
	looks atomic.Int64

	mu sync.Mutex
	// early are writes to what jobs have before anybody may act.
	early []string
	// deadly is called after the next write of the takeover, once, and always after
	// each; with who wrote.
	deadly, always func(who string)
	// last is the last write of the takeover that was deadly.
	last string
	// writes are all of the takeover, until one says that it is done.
	writes []string
	done   bool
	// leader wrote the lease last, leaders are all who did, and strangers writes to
	// what jobs have by others.
	leader    string
	leaders   set.Set[string]
	strangers []string
}

// gateway is a program's way to the API server.
type gateway struct {
	*ledger
	url, who string
}

func newGateway(config *rest.Config, ledger *ledger, who string) *gateway {
	GinkgoHelper()
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	g := &gateway{ledger: ledger, who: who}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: g.answered,
		ErrorHandler:   func(answer http.ResponseWriter, _ *http.Request, _ error) { answer.WriteHeader(http.StatusBadGateway) },
	}
	listening := httptest.NewServer(proxy)
	DeferCleanup(listening.CloseClientConnections)
	g.url = listening.URL
	return g
}

// answered sees each answer before the program does.
func (g *gateway) answered(response *http.Response) error {
	request := response.Request
	if request.Method == http.MethodGet && strings.Contains(request.URL.Path, "/deployments/") {
		g.looks.Add(1)
	}
	if !isWrite(request) || response.StatusCode >= http.StatusBadRequest {
		return nil
	}
	done, err := saysDone(response)
	if err != nil {
		return err
	}
	g.wrote(g.who, request.Method+" "+request.URL.Path, done)
	return nil
}

// saysDone reports whether the definition of jobs was written, and says that nothing is
// left to do. What is encoded, as JSON or Protobuf, has text as it is.
func saysDone(response *http.Response) (bool, error) {
	if !strings.HasSuffix(response.Request.URL.Path, dijobs) {
		return false, nil
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	return bytes.Contains(content, []byte("Done: nothing of an earlier release")), nil
}

// wrote notes a write.
func (l *ledger) wrote(who, at string, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(at, "/leases") {
		l.leader = who
		l.leaders.Insert(who)
	}
	if strings.Contains(at, "/namespaces/"+jobs+"/") && !strings.Contains(at, "/events") {
		if !l.mayAct.Load() {
			l.early = append(l.early, at)
		}
		if len(l.leaders) > 0 && who != l.leader {
			l.strangers = append(l.strangers, who+" "+at)
		}
	}
	if !ofTakeover(at) {
		return
	}
	if l.done = l.done || done; !l.done {
		l.writes = append(l.writes, at)
		if l.always != nil {
			l.always(who)
		}
	}
	if l.deadly != nil {
		kill := l.deadly
		l.deadly, l.last = nil, at
		kill(who)
	}
}

// ofTakeover tells writes of the takeover from those for jobs.
func ofTakeover(at string) bool {
	for _, resource := range []string{"/customresourcedefinitions/", "webhookconfigurations/", "/deployments/", "/services/di-server", "/endpointslices/", "/secrets"} {
		if strings.Contains(at, resource) {
			return true
		}
	}
	return false
}

// arm has the next write of the takeover kill, or none for nil. It returns the last one
// that did.
func (l *ledger) arm(kill func(who string)) (last string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last = l.last
	l.deadly, l.last = kill, ""
	return last
}

func (l *ledger) killedAfter() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *ledger) tooEarly() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.early
}

// elected returns who wrote the lease last.
func (l *ledger) elected() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}
