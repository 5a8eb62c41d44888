// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAMuteProxyLosesAnswersAndNoRequests(t *testing.T) {
	var executed atomic.Int32
	arrived := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		executed.Add(1)
		_, _ = io.WriteString(w, "done")
		arrived <- struct{}{}
	}))
	defer server.Close()
	way, err := New(t.Context(), "127.0.0.1:0", strings.TrimPrefix(server.URL, "http://"))
	expect.NoError(t, err)
	defer way.Close() //nolint:errcheck // it is a listener of this test
	way.Set(Mute)
	failed := make(chan error, 1)
	go func() { failed <- post(t, way) }()
	<-arrived
	// The answer may not have reached the proxy yet, so that it is cut rather than opened.
	way.Set(Cut)
	if err := <-failed; err == nil {
		t.Error("the answer arrived through a mute proxy")
	}
	way.Set(Open)
	expect.NoError(t, post(t, way))
	expect.Equal(t, "executed requests", 2, executed.Load())
}

func post(t *testing.T, way *Proxy) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+way.Address(), strings.NewReader("please"))
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
