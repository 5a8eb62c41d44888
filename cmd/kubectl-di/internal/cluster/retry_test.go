// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	unreached = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":` +
		`"Internal error occurred: failed calling webhook \"mutate-v2alpha1.diengine.opendilab.org\": connection refused"}`
	broken = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"etcdserver: no leader"}`
)

// failing is an API server that gives one answer a number of times, and then accepts.
type failing struct {
	answer string
	times  int
	bodies []string
	warned []string
}

func (f *failing) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	f.bodies = append(f.bodies, string(body))
	answer, code := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob"}`, http.StatusCreated
	if len(f.bodies) <= f.times {
		answer, code = f.answer, http.StatusInternalServerError
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(answer))}, nil
}

func (f *failing) HandleWarningHeader(_ int, _, text string) { f.warned = append(f.warned, text) }

// call sends a request and returns the answer and the duration of the call.
func (f *failing) call(ctx context.Context, t *testing.T, method string) (string, time.Duration) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "http://api/apis", bytes.NewReader([]byte("a job")))
	expect.NoError(t, err)
	began := time.Now()
	response, err := (&retrier{f, f}).RoundTrip(request)
	expect.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(answer), time.Since(began)
}

func TestAWriteThatReachesNoWebhookIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &failing{answer: unreached, times: 2}
		found, err := New(&rest.Config{Host: "http://api", Transport: api, WarningHandler: api}, "rl")
		expect.NoError(t, err)
		job := &unstructured.Unstructured{Object: map[string]any{}}
		job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
		job.SetNamespace("rl")
		job.SetName("pong")
		began := time.Now()
		if err := found.Submit(t.Context(), job, metav1.FieldValidationStrict, false); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if len(api.bodies) != 3 || len(slices.Compact(api.bodies)) != 1 || !strings.Contains(api.bodies[0], "pong") {
			t.Errorf("sent %q", api.bodies)
		}
		if len(api.warned) != 2 || !strings.Contains(api.warned[0], "connection refused; trying again") {
			t.Errorf("warned of %q", api.warned)
		}
	})
}

func TestAWriteThatNeverReachesAWebhookFailsAfterHalfAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &failing{answer: unreached, times: 1000}
		if answer, took := api.call(t.Context(), t, http.MethodPatch); answer != unreached || took != 30*time.Second {
			t.Errorf("got %s after %s", answer, took)
		}
		if len(api.bodies) != 6 {
			t.Errorf("made %d calls", len(api.bodies))
		}
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		api := &failing{answer: unreached, times: 1000}
		if answer, took := api.call(ctx, t, http.MethodPost); answer != unreached || took != 2*time.Second {
			t.Errorf("got %s after %s", answer, took)
		}
	})
}

func TestOtherAnswersAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, each := range []struct{ method, answer string }{
		{http.MethodPost, broken}, {http.MethodPost, "no JSON: failed calling webhook "}, {http.MethodGet, unreached}, {http.MethodDelete, unreached},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &failing{answer: each.answer, times: 1000}
			if answer, took := api.call(t.Context(), t, each.method); answer != each.answer || took != 0 || len(api.bodies) != 1 {
				t.Errorf("%s: got %s after %s and %d calls", each.method, answer, took, len(api.bodies))
			}
		})
	}
}
