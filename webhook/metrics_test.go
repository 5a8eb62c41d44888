// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// convertThrough sends a body to the conversion endpoint of all the webhooks.
func convertThrough(t *testing.T, handler http.Handler, body string) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+PathConvert, strings.NewReader(body))
	expect.NoError(t, err)
	response, err := server.Client().Do(request)
	expect.NoError(t, err)
	expect.NoError(t, response.Body.Close())
}

func TestConversionsAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := newHookMetrics(registry, logr.Discard())
	expect.NoError(t, err)
	handler, err := newHandler(logr.Discard(), metrics, hooks{guard: openGuard()})
	expect.NoError(t, err)
	const prefix = `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"diengine.opendilab.org/v2alpha1","objects":[`
	job := func(version string) string {
		return `{"apiVersion":"` + version + `","kind":"DIJob","metadata":{"name":"j"}}`
	}
	convertThrough(t, handler, prefix+job("diengine.opendilab.org/v1alpha1")+","+job("diengine.opendilab.org/v2alpha1")+"]}}")
	convertThrough(t, handler, prefix+job("made/up1")+","+job("made/up2")+"]}}")
	convertThrough(t, handler, "no review")

	want := `
# HELP di_orchestrator_conversion_bytes_in_flight Bytes of the conversion reviews in flight.
# TYPE di_orchestrator_conversion_bytes_in_flight gauge
di_orchestrator_conversion_bytes_in_flight 0
# HELP di_orchestrator_conversion_panics_total Objects whose conversion panicked; each is a bug of this program, and its log has the stack.
# TYPE di_orchestrator_conversion_panics_total counter
di_orchestrator_conversion_panics_total 0
# HELP di_orchestrator_conversions_total Objects in conversion reviews, by their version, the requested version, and the result: converted, unchanged or failed.
# TYPE di_orchestrator_conversions_total counter
di_orchestrator_conversions_total{from="other",result="failed",to="v2alpha1"} 2
di_orchestrator_conversions_total{from="v1alpha1",result="converted",to="v2alpha1"} 1
di_orchestrator_conversions_total{from="v2alpha1",result="unchanged",to="v2alpha1"} 1
`
	err = testutil.GatherAndCompare(registry, strings.NewReader(want), "di_orchestrator_conversion_bytes_in_flight",
		"di_orchestrator_conversion_panics_total", "di_orchestrator_conversions_total")
	if err != nil {
		t.Error(err)
	}
	checkSamples(t, registry, "di_orchestrator_conversion_review_objects", map[string]uint64{"": 2})
	checkSamples(t, registry, "di_orchestrator_conversion_review_duration_seconds", map[string]uint64{"200": 2, "400": 1})
}

func TestQuestionsOfAdmissionAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := newHookMetrics(registry, logr.Discard())
	expect.NoError(t, err)
	handler, err := newHandler(logr.Discard(), metrics, hooks{guard: openGuard()})
	expect.NoError(t, err)
	asked := func(version, object, old string) []byte {
		return review(t, &admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind{Version: version, Kind: "DIJob"}, Object: runtime.RawExtension{Raw: []byte(object)},
		}, old)
	}
	job := bigJob("v2alpha1", "i")
	ask(t, handler, PathMutateV2, asked("v2alpha1", job, ""))
	ask(t, handler, PathValidateV2, asked("v2alpha1", job, ""))
	ask(t, handler, PathValidateV2, asked("v2alpha1", job, job))
	ask(t, handler, PathValidateV2, asked("v2alpha1", strings.Replace(job, `"learner"`, `"none"`, 1), ""))
	ask(t, handler, PathValidateV1, asked("v1alpha1", `{"apiVersion":"nonsense"}`, ""))
	ask(t, handler, PathValidateV2, asked("v9", job, ""))
	want := `
# HELP di_orchestrator_admission_requests_total Admission reviews, by webhook, version that the user wrote, operation, and result: allowed, denied (invalid), or failed (unreadable object).
# TYPE di_orchestrator_admission_requests_total counter
di_orchestrator_admission_requests_total{operation="CREATE",result="allowed",version="other",webhook="validate-dijob"} 1
di_orchestrator_admission_requests_total{operation="CREATE",result="allowed",version="v2alpha1",webhook="mutate-dijob"} 1
di_orchestrator_admission_requests_total{operation="CREATE",result="allowed",version="v2alpha1",webhook="validate-dijob"} 1
di_orchestrator_admission_requests_total{operation="CREATE",result="denied",version="v2alpha1",webhook="validate-dijob"} 1
di_orchestrator_admission_requests_total{operation="CREATE",result="failed",version="v1alpha1",webhook="validate-dijob"} 1
di_orchestrator_admission_requests_total{operation="UPDATE",result="allowed",version="v2alpha1",webhook="validate-dijob"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "di_orchestrator_admission_requests_total"); err != nil {
		t.Error(err)
	}
}

// checkSamples checks the number of a histogram's observations by its label.
func checkSamples(t *testing.T, registry prometheus.Gatherer, name string, want map[string]uint64) {
	t.Helper()
	families, err := registry.Gather()
	expect.NoError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			label := ""
			if labels := metric.GetLabel(); len(labels) > 0 {
				label = labels[0].GetValue()
			}
			if got := metric.GetHistogram().GetSampleCount(); got != want[label] {
				t.Errorf("%s of %q has %d observations, want %d", name, label, got, want[label])
			}
			delete(want, label)
		}
	}
	if len(want) > 0 {
		t.Errorf("%s lacks %v", name, want)
	}
}

func TestPanicsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	metrics, err := newHookMetrics(nil, log)
	expect.NoError(t, err)
	metrics.Reviewed(t.Context(), conversion.Outcome{Objects: 30, Panics: 12, Panicked: []conversion.Panic{
		{Object: "request.objects[3] (DIJob ns/a)", Namespace: "ns", Name: "a", Cause: "index out of range", Stack: "spec.go:1"},
	}})
	if got := testutil.ToFloat64(metrics.panics.WithLabelValues()); got != 12 {
		t.Errorf("%v panics counted, want 12", got)
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "DIJob ns/a") || !strings.Contains(logged[0], "index out of range") || !strings.Contains(logged[0], "spec.go:1") ||
		!strings.Contains(logged[0], `"namespace"="ns" "name"="a"`) {
		t.Errorf("logged %v", logged)
	}
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	if _, err := newHookMetrics(registry, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if _, err := newHookMetrics(registry, logr.Discard()); err == nil {
		t.Error("a second registration of the same metrics is not told")
	}
}
