// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
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
)

// jobs is the namespace of the jobs.
const jobs = "training"

// gateway is a way to the API server that knows what is written, so that a test
// can kill who writes, and sees who writes too early.
type gateway struct {
	url string
	// mayAct says that nothing of the earlier release acts any more.
	mayAct atomic.Bool

	mu sync.Mutex
	// early are writes to what jobs have before anybody may act.
	early []string
	// deadly is called after the next write of the takeover, once.
	deadly func()
	// last is the last write of the takeover that was deadly.
	last string
}

func newGateway(config *rest.Config) *gateway {
	GinkgoHelper()
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	g := &gateway{}
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
	if !isWrite(request) || response.StatusCode >= http.StatusBadRequest {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := request.Method + " " + request.URL.Path
	if strings.Contains(at, "/namespaces/"+jobs+"/") && !strings.Contains(at, "/events") && !g.mayAct.Load() {
		g.early = append(g.early, at)
	}
	if g.deadly != nil && ofTakeover(at) {
		kill := g.deadly
		g.deadly, g.last = nil, at
		kill()
	}
	return nil
}

// ofTakeover tells writes of the takeover from those for jobs.
func ofTakeover(at string) bool {
	for _, resource := range []string{"/customresourcedefinitions/", "webhookconfigurations/", "/deployments/", "/secrets"} {
		if strings.Contains(at, resource) {
			return true
		}
	}
	return false
}

// arm has the next write of the takeover kill.
func (g *gateway) arm(kill func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadly, g.last = kill, ""
}

func (g *gateway) killedAfter() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func (g *gateway) tooEarly() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.early
}
