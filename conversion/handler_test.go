// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func reviewOf(objects ...string) string {
	return fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`,
		v2alpha1.GroupVersion.String(), strings.Join(objects, ","))
}

func jobNamed(apiVersion, name string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"DIJob","metadata":{"namespace":"ns","name":%q},"spec":{"coordinator":{}}}`,
		v1alpha1.GroupName, apiVersion, name)
}

func serve(ctx context.Context, handler http.Handler, method, body string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, method, "/convert", strings.NewReader(body)))
	return recorder
}

func TestAReviewIsAnsweredInOrder(t *testing.T) {
	t.Parallel()
	recorder := serve(t.Context(), NewHandler(Options{}), http.MethodPost,
		reviewOf(jobNamed("v1alpha1", "a"), jobNamed("v2alpha1", "b"), jobNamed("v1alpha1", "c")))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Kind != "ConversionReview" || answer.Response.UID != "u-1" || answer.Response.Result.Status != "Success" {
		t.Fatalf("answer: %s", recorder.Body)
	}
	var names []string
	for _, converted := range answer.Response.ConvertedObjects {
		var job v2alpha1.DIJob
		if err := json.Unmarshal(converted.Raw, &job); err != nil {
			t.Fatal(err)
		}
		names = append(names, job.APIVersion+" "+job.Name)
	}
	want := []string{"diengine.opendilab.org/v2alpha1 a", "diengine.opendilab.org/v2alpha1 b", "diengine.opendilab.org/v2alpha1 c"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("converted objects (-want +got):\n%s", diff)
	}
}

func TestAFailureNamesTheObject(t *testing.T) {
	t.Parallel()
	recorder := serve(t.Context(), NewHandler(Options{}), http.MethodPost, reviewOf(jobNamed("v1alpha1", "a"), jobNamed("v1", "bad")))
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	want := `request.objects[1] (DIJob ns/bad): apiVersion: "diengine.opendilab.org/v1" is neither ` +
		`diengine.opendilab.org/v1alpha1 nor diengine.opendilab.org/v2alpha1`
	if answer.Response.Result.Status != "Failure" || answer.Response.Result.Message != want {
		t.Errorf("result: %+v, want message %q", answer.Response.Result, want)
	}
	if len(answer.Response.ConvertedObjects) != 0 {
		t.Errorf("a failure carries objects: %s", recorder.Body)
	}
}

func TestWhatIsNoReviewIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, body string
		want         int
	}{
		"no JSON":         {http.MethodPost, `{"kind":`, http.StatusBadRequest},
		"another kind":    {http.MethodPost, `{"kind":"Pod","apiVersion":"v1"}`, http.StatusBadRequest},
		"another version": {http.MethodPost, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1"}`, http.StatusBadRequest},
		"no request":      {http.MethodPost, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}`, http.StatusBadRequest},
		"empty":           {http.MethodPost, ``, http.StatusBadRequest},
		"a GET":           {http.MethodGet, ``, http.StatusMethodNotAllowed},
		"too big":         {http.MethodPost, reviewOf(strings.Repeat(" ", 2000)), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := NewHandler(Options{MaxReviewBytes: 1000})
			if got := serve(t.Context(), handler, tc.method, tc.body).Code; got != tc.want {
				t.Errorf("status %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAnEmptyReviewSucceeds(t *testing.T) {
	t.Parallel()
	recorder := serve(t.Context(), NewHandler(Options{}), http.MethodPost, reviewOf())
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Response.Result.Status != "Success" {
		t.Errorf("answer: %s", recorder.Body)
	}
}
