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
	"k8s.io/client-go/rest"
	"k8s.io/utils/set"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// jobs is the namespace of the jobs.
const jobs = "training"

// ledger records the writes of programs, so that a test can kill a program after a write and detect
// writes that come too early.
type ledger struct {
	// mayAct is set when no part of the earlier release acts any longer.
	mayAct atomic.Bool
	// looks counts the lists of Deployments of an earlier release.
	looks atomic.Int64

	mu sync.Mutex
	// early are writes to objects of jobs before mayAct is set.
	early []string
	// deadly is called once, after the next write of the takeover. always is called after each.
	// Both get the name of the writer.
	deadly, always func(who string)
	// last is the last write of the takeover that called deadly.
	last string
	// writes are all writes of the takeover, until one records that the takeover is done.
	writes []string
	done   bool
	// leader is the last writer of the lease. leaders are all its writers. strangers are writes of
	// other programs to objects of jobs.
	leader    string
	leaders   set.Set[string]
	strangers []string
}

// gateway is a program's proxy to the API server.
type gateway struct {
	*ledger
	url, who string
}

func newGateway(config *rest.Config, ledger *ledger, who string) *gateway {
	GinkgoHelper()
	target := specs.Must(url.Parse(config.Host))
	transport := specs.Must(rest.TransportFor(config))
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

// answered inspects each answer before the program receives it.
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

// saysDone reports whether the answer is a written job definition that records the end of the
// takeover. JSON and Protobuf both encode text literally.
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

// wrote records a write.
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

// ofTakeover reports whether a write belongs to the takeover, rather than to a job.
func ofTakeover(at string) bool {
	for _, resource := range []string{"/customresourcedefinitions/", "webhookconfigurations/", "/deployments/", "/services/di-server", "/endpointslices/", "/secrets"} {
		if strings.Contains(at, resource) {
			return true
		}
	}
	return false
}

// arm sets the function that is called after the next write of the takeover; nil for none. It
// returns the last write that called the previous one.
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

// elected returns the last writer of the lease.
func (l *ledger) elected() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}
