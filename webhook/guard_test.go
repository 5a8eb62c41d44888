// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// testToken is the token of guarded paths in tests.
const testToken = "0123456789abcdef"

func openGuard() *guard {
	g := &guard{}
	g.accept(testToken)
	return g
}

// servedPaths returns all paths of admission, with the token of those that have one.
func servedPaths() []string {
	paths := []string{PathMutateV1, PathValidateV1, PathMutateV2, PathValidateV2, PathValidateAggregatorConfig, PathValidateScalePlan}
	for _, path := range guardedPaths() {
		paths = append(paths, path+"/"+testToken)
	}
	return paths
}

func TestAGuardedPathIsUnknownToWhoDoesNotKnowItsToken(t *testing.T) {
	t.Parallel()
	g := openGuard()
	mux := http.NewServeMux()
	for _, path := range guardedPaths() {
		g.handle(mux, path, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	status := func(path string) int {
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		return recorder.Code
	}
	for _, path := range guardedPaths() {
		for _, guess := range []string{"", "/", "/" + testToken[1:], "/" + strings.ToUpper(testToken), "/" + testToken + "/", "//" + testToken} {
			if code := status(path + guess); code == http.StatusOK {
				t.Errorf("%s is answered", path+guess)
			}
		}
		if code := status(path + "/" + testToken); code != http.StatusOK {
			t.Errorf("%s with its token: status %d", path, code)
		}
	}

	g.accept("next")
	if status(PathCheckPods+"/next") != http.StatusOK || status(PathCheckPods+"/"+testToken) != http.StatusOK {
		t.Error("one of two tokens is unknown while API servers learn of the second")
	}
	g.accept("third")
	if status(PathCheckPods+"/"+testToken) == http.StatusOK {
		t.Error("a token is known after two others")
	}
	if (&guard{}).knows("") {
		t.Error("the empty token is known before there is one")
	}
}
