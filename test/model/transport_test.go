// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestAnEndedProcessReadsButWritesNothing(t *testing.T) {
	arrived := map[string]int{}
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { arrived[request.Method]++ }))
	defer api.Close()
	process := newProcess(func() {}, func() {})
	process.end()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		request, err := http.NewRequestWithContext(t.Context(), method, api.URL, http.NoBody)
		expect.NoError(t, err)
		response, err := process.wrap(http.DefaultTransport).RoundTrip(request)
		reads := method == http.MethodGet
		if reads != (err == nil) || !reads && !errors.Is(err, errEnded) {
			t.Errorf("%s of an ended process: %v", method, err)
		}
		if err := closeBody(response); err != nil {
			t.Error(err)
		}
	}
	if len(arrived) != 1 || arrived[http.MethodGet] != 1 {
		t.Errorf("the server received %v, want only the GET", arrived)
	}
}
