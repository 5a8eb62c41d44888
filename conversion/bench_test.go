// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// BenchmarkReview converts reviews of jobs of 10 kB. The reference decodes and encodes the same
// bytes, which costs less than an endpoint with typed functions.
func BenchmarkReview(b *testing.B) {
	for _, objects := range []int{1, 50, 2000} {
		body := reviewOf(b, objects)
		b.Run(fmt.Sprintf("objects=%d/endpoint", objects), func(b *testing.B) {
			handler := conversion.NewHandler(conversion.Options{})
			perObject(b, objects, func() {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/convert", bytes.NewReader(body)))
				if !bytes.Contains(answer.Body.Bytes(), []byte(`"status":"Success"`)) {
					b.Fatalf("%.300s", answer.Body)
				}
			})
		})
		b.Run(fmt.Sprintf("objects=%d/reference", objects), func(b *testing.B) {
			perObject(b, objects, func() {
				var review map[string]any
				expect.NoError(b, json.Unmarshal(body, &review))
				if _, err := json.Marshal(review); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func perObject(b *testing.B, objects int, do func()) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*objects), "ns/object")
}

func reviewOf(b *testing.B, objects int) []byte {
	b.Helper()
	var list []json.RawMessage
	for i := range objects {
		job, err := jobs.Of("bench", fmt.Sprintf("job-%05d", i), 10_000)
		expect.NoError(b, err)
		list = append(list, job)
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"request": map[string]any{"uid": "bench", "desiredAPIVersion": v2alpha1.GroupVersion.String(), "objects": list},
	})
	expect.NoError(b, err)
	return body
}
