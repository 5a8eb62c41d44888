// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// gateway is a proxy to the API server that parses requests. A test can drop the answer to one, or
// answer instead of the API server.
type gateway struct {
	url string
	// lost is the number of answers to writes of Memberships and DIJobs that will be dropped.
	lost atomic.Int32
	// refuses is the resource for which the gateway answers 503.
	refuses atomic.Pointer[string]
	refused atomic.Int32
}

func newGateway(config *rest.Config) *gateway {
	GinkgoHelper()
	target := specs.Must(url.Parse(config.Host))
	transport := specs.Must(rest.TransportFor(config))
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	g := &gateway{}
	proxy.ModifyResponse = g.answered
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // it is how net/http is told to close a connection
	}
	g.refuse("nothing")
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/"+*g.refuses.Load()) {
			g.refused.Add(1)
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	DeferCleanup(listening.CloseClientConnections)
	g.url = listening.URL
	return g
}

// refuse makes the gateway answer 503 to requests for a resource.
func (g *gateway) refuse(resource string) { g.refuses.Store(&resource) }

// answered drops an answer if lost is positive.
func (g *gateway) answered(response *http.Response) error {
	request := response.Request
	isWrite := request.Method == http.MethodPut && strings.Contains(request.URL.Path, "/memberships/") ||
		request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/dijobs/")
	if isWrite && response.StatusCode == http.StatusOK && g.lost.Add(-1) >= 0 {
		return errors.New("the answer is lost")
	}
	return nil
}
