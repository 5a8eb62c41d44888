// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package diserver_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

var errRefused = errors.New("connection refused")

// transport answers each call with a status; 0 is a connection error. The last status applies to
// all further calls.
type transport struct {
	statuses []int
	reply    string
	calls    []string
	times    []time.Time
}

func (f *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f.calls = append(f.calls, strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Content-Type"), string(body)}, "|"))
	f.times = append(f.times, time.Now())
	status := f.statuses[0]
	if len(f.statuses) > 1 {
		f.statuses = f.statuses[1:]
	}
	if status == 0 {
		return nil, errRefused
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(f.reply)), Request: r}, nil
}

const goodReply = `{"success":true,"code":0,"message":"successfully get replicas",
	"data":{"namespace":"ns","coordinator":"c","collectors":["a.ns:1"],"learners":null}}`

func newClient(t *testing.T, f *transport) *diserver.Client {
	t.Helper()
	c, err := diserver.New(diserver.Config{
		URL: "di-server.di-system:8080", APIVersion: "/v1alpha1", Namespace: "ns", Name: "c",
		RetryWait: time.Second, HTTP: &http.Client{Transport: f},
	})
	expect.NoError(t, err)
	return c
}

func TestCallsLookLikeThoseOfDeployedClients(t *testing.T) {
	t.Parallel()
	const base = "http://di-server.di-system:8080/v1alpha1"
	tests := map[string]struct {
		call func(context.Context, *diserver.Client) error
		want string
	}{
		"create": {
			func(ctx context.Context, c *diserver.Client) error {
				_, err := c.Create(ctx, diserver.Resources{Replicas: 2}, diserver.Resources{Replicas: 1, GPUs: "2"})
				return err
			},
			"POST|" + base + `/replicas||{"namespace":"ns","coordinator":"c","collectors":{"replicas":2},"learners":{"replicas":1,"gpus":"2"}}`,
		},
		"delete": {
			func(ctx context.Context, c *diserver.Client) error { _, err := c.Delete(ctx, 1, 0); return err },
			"DELETE|" + base + `/replicas||{"namespace":"ns","coordinator":"c","collectors":{"replicas":1},"learners":{"replicas":0}}`,
		},
		"list of a coordinator": {
			func(ctx context.Context, c *diserver.Client) error { _, err := c.OfCoordinator(ctx); return err },
			"GET|" + base + `/replicas?coordinator=c&namespace=ns||{}`,
		},
		"list of an aggregator": {
			func(ctx context.Context, c *diserver.Client) error { _, err := c.OfAggregator(ctx); return err },
			"GET|" + base + `/replicas?aggregator=c&namespace=ns||{}`,
		},
		"failed": {
			func(ctx context.Context, c *diserver.Client) error {
				return c.ReportFailed(ctx, diserver.Failed{Collectors: []string{"a"}})
			},
			"POST|" + base + `/replicas/failed||{"namespace":"ns","coordinator":"c","collectors":["a"],"learners":[]}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &transport{statuses: []int{200}, reply: goodReply}
			expect.NoError(t, tc.call(t.Context(), newClient(t, f)))
			if !slices.Equal(f.calls, []string{tc.want}) {
				t.Errorf("got %q, want %q", f.calls, tc.want)
			}
		})
	}
}

func TestConnectionErrorsAreRetriedFiveTimesASecondApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &transport{statuses: []int{0, 0, 0, 0, 0, 200}, reply: goodReply}
		if _, err := newClient(t, f).Create(t.Context(), diserver.Resources{}, diserver.Resources{}); err != nil {
			t.Fatal(err)
		}
		if len(f.times) != 6 || f.times[5].Sub(f.times[0]) != 5*time.Second {
			t.Errorf("got calls at %v, want 6 over 5 s", f.times)
		}
		f = &transport{statuses: []int{0}}
		if _, err := newClient(t, f).Delete(t.Context(), 1, 1); !errors.Is(err, errRefused) || len(f.calls) != 6 {
			t.Errorf("got %v after %d calls, want %v after 6", err, len(f.calls), errRefused)
		}
	})
}

func TestErrorStatusesAreNotRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 404, 409, 500, 501, 503} {
		f := &transport{statuses: []int{status}, reply: `{"success":false,"code":1,"message":"no","data":null}`}
		_, err := newClient(t, f).OfCoordinator(t.Context())
		answer, ok := errors.AsType[*diserver.StatusError](err)
		if !ok || answer.Status != status || answer.Message != "no" || len(f.calls) != 1 {
			t.Errorf("status %d: got %v after %d calls, want it after one", status, err, len(f.calls))
		}
	}
}

func TestAnAnswerWithoutSuccessIsLaterAndNoError(t *testing.T) {
	t.Parallel()
	f := &transport{statuses: []int{200}, reply: `{"success":false,"code":1,"message":"not now","data":null}`}
	_, err := newClient(t, f).OfCoordinator(t.Context())
	if !diserver.IsLater(err) || len(f.calls) != 1 || !strings.HasSuffix(err.Error(), ": not now") {
		t.Errorf("got %v after %d calls", err, len(f.calls))
	}
}

func TestURLsAreTakenWithAndWithoutScheme(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"http://di-server:8080":  "http://di-server:8080/v1alpha1/replicas",
		"http://di-server:8080/": "http://di-server:8080/v1alpha1/replicas",
		"di-server:8080":         "http://di-server:8080/v1alpha1/replicas",
		"https://di-server":      "https://di-server/v1alpha1/replicas",
	}
	for url, want := range tests {
		f := &transport{statuses: []int{200}, reply: goodReply}
		c, err := diserver.New(diserver.Config{URL: url, APIVersion: "v1alpha1", HTTP: &http.Client{Transport: f}})
		expect.NoError(t, err)
		if _, err := c.OfCoordinator(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(strings.Split(f.calls[0], "|")[1], "?")[0]; got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	if _, err := diserver.New(diserver.Config{URL: "http://"}); err == nil {
		t.Error("want an error for a URL without host")
	}
}

func TestEachCallReadsTheTokenAgain(t *testing.T) {
	t.Parallel()
	var sent []string
	f := &transport{statuses: []int{http.StatusOK}, reply: goodReply}
	watched := watch{f, func(r *http.Request) { sent = append(sent, strings.Join(r.Header.Values("Authorization"), "|")) }}
	file := filepath.Join(t.TempDir(), "token")
	config := diserver.Config{URL: "s", APIVersion: "/v1alpha1", Namespace: "ns", Name: "c", HTTP: &http.Client{Transport: watched}}
	call := func(tokenFile string) {
		config.TokenFile = tokenFile
		c, err := diserver.New(config)
		expect.NoError(t, err)
		if _, err := c.OfCoordinator(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	call(file)
	for _, token := range []string{"first", "second\n"} {
		expect.NoError(t, os.WriteFile(file, []byte(token), 0o600))
		call(file)
	}
	call("")
	if want := []string{"", "Bearer first", "Bearer second", ""}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
}

// watch is a transport that reports each call.
type watch struct {
	http.RoundTripper
	observe func(*http.Request)
}

func (w watch) RoundTrip(r *http.Request) (*http.Response, error) {
	w.observe(r)
	return w.RoundTripper.RoundTrip(r)
}
