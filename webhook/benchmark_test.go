// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// BenchmarkAdmission calls each webhook with an update of a job of 50 kB whose template changes,
// which is the most expensive request.
func BenchmarkAdmission(b *testing.B) {
	handler := quietHandler(b)
	for _, path := range []string{PathMutateV1, PathValidateV1, PathMutateV2, PathValidateV2} {
		version := "v2alpha1"
		if path == PathMutateV1 || path == PathValidateV1 {
			version = "v1alpha1"
		}
		review := reviewOf(b, bigJob(version, "i"), bigJob(version, "j"))
		b.Run(strings.TrimPrefix(path, "/"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if answer := ask(b, handler, path, review); !answer.Allowed {
					b.Fatalf("refused: %v", answer.Result)
				}
			}
		})
	}
}

// bigJob returns a job of about 50 kB of the version.
func bigJob(version, image string) string {
	var env strings.Builder
	for i := range 230 {
		fmt.Fprintf(&env, `,{"name":"SETTING_%04d","value":%q}`, i, strings.Repeat("x", 66))
	}
	template := `{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"di-container","image":"` + image + `","env":[{"name":"A","value":"1"}` + env.String() +
		`],"ports":[{"name":"di-port","containerPort":22270}],"resources":{"limits":{"cpu":"4","memory":"8Gi"}}}]}}`
	spec := `{"coordinator":{"template":` + template + `},"collector":{"template":` + template + `},"extended":{"suspend":true}}`
	if version == "v2alpha1" {
		spec = `{"tasks":[{"type":"learner","replicas":1,"template":` + template + `},{"type":"collector","replicas":4,"template":` + template + `}]}`
	}
	return `{"apiVersion":"diengine.opendilab.org/` + version + `","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":` + spec + `}`
}

// reviewOf returns the review of a new job or, if there is an old one, of an update.
func reviewOf(tb testing.TB, job, old string) []byte {
	tb.Helper()
	return review(tb, &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(job)}}, old)
}

// reviewOfStatus returns the review of an update of the status.
func reviewOfStatus(tb testing.TB, job, old string) []byte {
	tb.Helper()
	return review(tb, &admissionv1.AdmissionRequest{SubResource: "status", Object: runtime.RawExtension{Raw: []byte(job)}}, old)
}

func review(tb testing.TB, request *admissionv1.AdmissionRequest, old string) []byte {
	tb.Helper()
	request.UID, request.Name, request.Operation = "u", "j", admissionv1.Create
	if old != "" {
		request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(old)
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request,
	})
	expect.NoError(tb, err)
	return review
}

// ask sends a review like the API server.
func ask(tb testing.TB, handler http.Handler, path string, review []byte) *admissionv1.AdmissionResponse {
	tb.Helper()
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, bytes.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		tb.Fatalf("answer %q: %v", recorder.Body.String(), err)
	}
	return answer.Response
}
