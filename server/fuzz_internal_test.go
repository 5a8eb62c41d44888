// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// asRequest returns a request with a body.
func asRequest(content string) *gin.Context {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(content)) //nolint:noctx // nothing is awaited
	return c
}

// mustBeInvalid fails where an error is not one that tells a client what is wrong.
func mustBeInvalid(t *testing.T, err error) {
	t.Helper()
	var failed *Error
	if err != nil && (!errors.As(err, &failed) || failed.Kind != KindInvalid || len(failed.Message) > 16<<10) {
		t.Fatalf("got %v, want a short failure of kind Invalid", err)
	}
}

func FuzzReplicasBody(f *testing.F) {
	for _, seed := range []string{
		`{"namespace":"n","coordinator":"c","collectors":{"replicas":2,"cpus":"500m"},"learners":{"gpus":1e9,"memory":"1e-10000000"}}`,
		`{"namespace":"n","coordinator":"c","learners":{"gpus":"1e1000000000"}}`, `null`, `[]`, `{`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		raw, by, err := readCaller(asRequest(content))
		mustBeInvalid(t, err)
		if err != nil {
			return
		}
		body, err := raw.replicas(by)
		mustBeInvalid(t, err)
		if err == nil && (body.Namespace == "" || body.Coordinator == "" || body.Collectors.Replicas < 0 || body.Learners.Replicas < 0) {
			t.Fatalf("%q is accepted as %+v", content, body)
		}
		_, err = raw.failed(by)
		mustBeInvalid(t, err)
	})
}

func FuzzResizeBody(f *testing.F) {
	for _, seed := range []string{`{"replicas":1}`, `{"replicas":1e9}`, `{"replicas":-1}`, `{"data":{}}`, `{"data":null}`, `null`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		replicas, err := readResize(asRequest(content))
		mustBeInvalid(t, err)
		if replicas < 0 {
			t.Fatalf("%q is accepted as %d", content, replicas)
		}
		_, err = readProfilings(asRequest(content))
		mustBeInvalid(t, err)
	})
}

func FuzzJobID(f *testing.F) {
	for _, seed := range []string{"n.j", "n.j.1", "n.j.-1", "..", "n.j.99999999999", "a/b.c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parseJobID(text)
		mustBeInvalid(t, err)
		if err == nil && (id.key.Namespace == "" || id.key.Name == "" || id.generation < -1) {
			t.Fatalf("%q is accepted as %+v", text, id)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"namespace=n&coordinator=c", "NAMESPACE=n&name=p", "a=%zz", "namespace=a&namespace=b", ";"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		c := asRequest("")
		c.Request.URL = &url.URL{RawQuery: query}
		wanted, err := readFilter(c)
		if err != nil && len(query) > 4<<10 {
			return
		}
		mustBeInvalid(t, err)
		if err == nil && wanted.namespace == "" && wanted != (filter{}) {
			t.Fatalf("%q is accepted as %+v", query, wanted)
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, seed := range []string{"a", "a.b.c", "e30.e30.e30", "e30.eyJhdWQiOiJkaS1zZXJ2ZXIifQ.e30"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, token string) { mayBeOurs(token, time.Unix(1e9, 0)) })
}
