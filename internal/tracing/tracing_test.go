// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	stdhex "encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func hex(id []byte) string { return stdhex.EncodeToString(id) }

// sender is the traceparent of a caller that samples, and silent that of one that does not.
const (
	senderTrace = "0af7651916cd43dd8448eb211c80319c"
	sender      = "00-" + senderTrace + "-b7ad6b7169203331-01"
	silent      = "00-" + senderTrace + "-b7ad6b7169203331-00"
)

// collect starts a collector, and a provider that sends traces to it. The returned function flushes
// the provider and returns the collected spans.
func collect(t *testing.T, ratio float64) (trace.TracerProvider, func() []*testkit.Span) {
	t.Helper()
	collector, err := testkit.StartCollector(t.Context())
	expect.NoError(t, err)
	t.Cleanup(collector.Stop)
	provider, err := tracing.New(t.Context(), tracing.Options{
		Endpoint: collector.Endpoint, Ratio: ratio, Program: "program", Version: "v1",
	})
	expect.NoError(t, err)
	return provider, func() []*testkit.Span {
		t.Helper()
		expect.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context())))
		return collector.Spans(func(*testkit.Span) bool { return true })
	}
}

func all(*http.Request) bool { return true }

func get(t *testing.T, handler http.Handler, path, parent string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	if parent != "" {
		request.Header.Set("traceparent", parent)
	}
	handler.ServeHTTP(httptest.NewRecorder(), request)
}

func TestARequestHasASpanInTheTraceOfItsSender(t *testing.T) {
	t.Parallel()
	provider, sent := collect(t, 0)
	mux := http.NewServeMux()
	mux.HandleFunc("/things/{name}", func(http.ResponseWriter, *http.Request) {})
	handler := tracing.Handler(mux, provider, func(r *http.Request) bool { return r.URL.Path != "/probe" })
	get(t, handler, "/things/a", sender)
	get(t, handler, "/things/b", silent)
	get(t, handler, "/things/c", "")
	get(t, handler, "/probe", sender)

	spans := sent()
	if len(spans) != 1 {
		t.Fatalf("got %v, want the one span whose sender records", spans)
	}
	got := spans[0]
	if hex(got.GetTraceId()) != senderTrace || got.GetName() != "GET /things/{name}" || got.Service != "program" {
		t.Errorf("got %v of %s", got, got.Service)
	}
}

func TestASenderThatIsAStrangerDecidesNothing(t *testing.T) {
	t.Parallel()
	for ratio, want := range map[float64]int{0: 0, 1: 1} {
		provider, sent := collect(t, ratio)
		get(t, tracing.Public(http.NotFoundHandler(), provider, all), "/", sender)
		spans := sent()
		if len(spans) != want {
			t.Fatalf("%d recorded with ratio %v, want %d", len(spans), ratio, want)
		}
		for _, span := range spans {
			if hex(span.GetTraceId()) == senderTrace || len(span.GetLinks()) != 1 {
				t.Errorf("got %v, want a trace of its own that is linked to the sender's", span)
			}
		}
	}
}

func TestOfTracesThatBeginHereTheRatioIsRecorded(t *testing.T) {
	t.Parallel()
	for ratio, want := range map[float64]int{0: 0, 1: 10} {
		provider, sent := collect(t, ratio)
		handler := tracing.Handler(http.NotFoundHandler(), provider, all)
		for range 10 {
			get(t, handler, "/", "")
		}
		if got := len(sent()); got != want {
			t.Errorf("%d of 10 recorded with ratio %v, want %d", got, ratio, want)
		}
	}
}

func TestACallThatBelongsToATraceTellsTheAPIServer(t *testing.T) {
	t.Parallel()
	provider, sent := collect(t, 1)
	parents := make(chan string, 2)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("traceparent") }))
	defer api.Close()
	client := &http.Client{Transport: tracing.Transport(provider)(http.DefaultTransport)}
	ctx, span := provider.Tracer("test").Start(t.Context(), "pass")
	call(ctx, t, client, api.URL+"/apis/diengine.opendilab.org/v2alpha1/namespaces/ns/dijobs/job/status")
	call(t.Context(), t, client, api.URL+"/api/v1/pods?watch=1")
	span.End()

	told, watch := <-parents, <-parents
	if watch != "" {
		t.Errorf("a watch has traceparent %q, want none", watch)
	}
	var child *testkit.Span
	spans := sent()
	for _, one := range spans {
		if one.GetName() == "GET dijobs/status" {
			child = one
		}
	}
	if child == nil || len(spans) != 2 {
		t.Fatalf("got %v, want the pass and its call", spans)
	}
	id := span.SpanContext()
	if want := "00-" + id.TraceID().String() + "-" + hex(child.GetSpanId()) + "-01"; told != want {
		t.Errorf("the API server is told %q, want %q", told, want)
	}
	if hex(child.GetParentSpanId()) != id.SpanID().String() {
		t.Errorf("the call is no child of the pass")
	}
}

func call(ctx context.Context, t *testing.T, client *http.Client, url string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	expect.NoError(t, err)
	response, err := client.Do(request)
	expect.NoError(t, err)
	expect.NoError(t, response.Body.Close())
}

func TestAPassHasASpanAndItsLinesNameItsTrace(t *testing.T) {
	t.Parallel()
	provider, sent := collect(t, 1)
	logger, lines := testkit.ObserveLog()
	pass := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		log.FromContext(ctx).Info("looked")
		return reconcile.Result{RequeueAfter: 1500 * time.Millisecond}, errors.New("refused")
	})
	reconciler := tracing.Reconciler(pass, provider, "pass")
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "job"}}
	if _, err := reconciler.Reconcile(log.IntoContext(t.Context(), logger), request); err == nil {
		t.Error("the pass's error is lost")
	}
	spans := sent()
	if len(spans) != 1 {
		t.Fatalf("got %v, want one span", spans)
	}
	got := spans[0]
	for key, want := range map[string]any{"k8s.namespace.name": "ns", "di.job.name": "job", "di.requeue_after_s": 1.5} {
		if got.Attributes[key] != want {
			t.Errorf("%s is %v, want %v", key, got.Attributes[key], want)
		}
	}
	if got.GetStatus().GetMessage() != "refused" || int(got.GetStatus().GetCode()) != 2 {
		t.Errorf("status is %v, want %v of the error", got.GetStatus(), codes.Error)
	}
	if named := lines.All()[0].ContextMap()["trace_id"]; named != hex(got.GetTraceId()) {
		t.Errorf("the line has trace_id %v, want %s", named, hex(got.GetTraceId()))
	}
}

func TestWithoutAProviderNothingIsWrapped(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	if got := tracing.Handler(mux, nil, all); got != http.Handler(mux) {
		t.Errorf("the handler is %T", got)
	}
	if tracing.Transport(nil) != nil {
		t.Error("calls to the API server are wrapped")
	}
	inner := &counter{}
	if got := tracing.Reconciler(inner, nil, "pass"); got != reconcile.Reconciler(inner) {
		t.Errorf("the reconciler is %T", got)
	}
}

type counter struct{}

func (*counter) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}

// The worst collector accepts connections and never answers.
func TestADeadCollectorBlocksNoRequestAndAStopIsBounded(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer func() { _ = listener.Close() }()
	provider, err := tracing.New(t.Context(), tracing.Options{
		Endpoint: "http://" + listener.Addr().String(), Ratio: 1, Program: "program", Version: "v1",
	})
	expect.NoError(t, err)
	handler := tracing.Handler(http.NotFoundHandler(), provider, all)
	// More than the queue holds: a request that waited for the collector would never finish.
	for range 10_000 {
		get(t, handler, "/", "")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := provider.Shutdown(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the time to stop is over", err)
	}
}

func TestWhatGoesWrongWithTracesIsLoggedOnceInAWhile(t *testing.T) {
	t.Parallel()
	logger, lines := testkit.ObserveLog()
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	complaints := &tracing.Complaints{Log: logger, Clock: clock}
	for range 100 {
		complaints.Handle(errors.New("no collector"))
	}
	clock.SetTime(clock.Now().Add(time.Hour))
	complaints.Handle(errors.New("still none"))
	got := lines.All()
	if len(got) != 2 {
		t.Fatalf("%d lines, want 2", len(got))
	}
	if first := got[0].ContextMap(); first["reason"] != "no collector" {
		t.Errorf("got %v", first)
	}
	if second := got[1].ContextMap(); second["reason"] != "still none" || second["notLogged"] != int64(99) {
		t.Errorf("got %v", second)
	}
}
