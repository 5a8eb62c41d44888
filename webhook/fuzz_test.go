// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// FuzzAdmissionReview sends arbitrary bodies to all webhooks. Each must answer with a review of
// bounded size.
func FuzzAdmissionReview(f *testing.F) {
	template := inTemplate(`"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"b"}],"resources":{"limits":{"cpu":"1"}}}],"volumes":[{"name":"v"}]`)
	small := `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"coordinator":{"template":` +
		`{"spec":{"containers":[{"name":"di-container","image":"i"}]}}},"extended":{"tasks":[{"type":"learner","name":"l"}],"suspend":true}},"status":{"extended":{"restarts":1}}}`
	many := strings.Replace(template, `"spec":{"tasks"`, `"spec":{"elastic":{"task":"a"},"successPolicy":{"targetTasks":["b"]},"failurePolicy":{"rules":[{"tasks":["c"]}]},`+
		`"clusterSpec":["TensorFlow"],"volumes":[{"name":"v"}],"tasks"`, 1)
	config := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"AggregatorConfig","metadata":{"name":"a"},"spec":{"aggregator":{"template":{"spec":{"containers":[{}]}}}}}`
	for _, job := range []string{template, small, many, config, bigJob("v1alpha1", "i"), `{}`, `{"spec":{"tasks":[1]}}`} {
		f.Add(reviewOf(f, job, ""))
		f.Add(reviewOf(f, job, job))
		f.Add(reviewOfStatus(f, job, job))
		f.Add(dryRun(f, job))
	}
	f.Add([]byte(`{"request":{"uid":"u","object":` + listOf(`[`, 100) + `}}`))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`))
	handler := quietHandler(f)
	f.Fuzz(func(t *testing.T, review []byte) {
		for _, path := range servedPaths() {
			answersAReview(t, handler, path, review)
		}
	})
}

// answersAReview checks one answer to an arbitrary body.
func answersAReview(t *testing.T, handler http.Handler, path string, review []byte) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("%s: %q is answered %q: %v", path, review, recorder.Body, err)
	}
	if result := answer.Response.Result; result != nil && strings.Contains(result.Message, "panic") && !bytes.Contains(review, []byte("panic")) {
		t.Fatalf("%s: %q: %s", path, review, result.Message)
	}
	// A refusal repeats a bounded part of each error, and a patch has members for each task.
	if most := 2*mostErrors*6*errorLength + 20*len(review); recorder.Body.Len() > most {
		t.Fatalf("%s: %q is answered with %d bytes", path, review, recorder.Body.Len())
	}
	var asked admissionv1.AdmissionReview
	if json.Unmarshal(review, &asked) != nil || asked.Request == nil || asked.Kind != "AdmissionReview" || asked.APIVersion != admissionv1.SchemeGroupVersion.String() {
		return
	}
	if answer.Response.UID != asked.Request.UID && answer.Response.Result != nil && answer.Response.Result.Code != http.StatusBadRequest {
		t.Fatalf("%s: %q is answered to %q", path, review, answer.Response.UID)
	}
}
