// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestAnAdmissionRequestThatIsTooLargeIsRefusedUnread(t *testing.T) {
	t.Parallel()
	handler := quietHandler(t)
	// The API server takes objects of 3 MiB, and sends the old one with the new.
	fits := bigJob("v2alpha1", strings.Repeat("i", 1<<20))
	if answer := ask(t, handler, PathMutateV2, reviewOf(t, fits, fits)); !answer.Allowed {
		t.Errorf("%d bytes: refused: %v", 2*len(fits), answer.Result)
	}
	tooLarge := bigJob("v2alpha1", strings.Repeat("i", 4<<20))
	answer := ask(t, handler, PathValidateV2, reviewOf(t, tooLarge, tooLarge))
	if answer.Allowed || answer.Result.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d bytes: got %+v, want a refusal for the size", 2*len(tooLarge), answer)
	}
}

func TestAPanicEndsOneRequestAndNotTheServer(t *testing.T) {
	t.Parallel()
	var none map[string]bool
	handler, err := admissionHandler(logr.Discard(), "/panic", validating(func(*question) field.ErrorList {
		none["a"] = true
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	small := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob"}`
	for range 2 {
		answer := ask(t, handler, "/panic", reviewOf(t, small, ""))
		if answer.Allowed || answer.Result.Code != http.StatusInternalServerError || !strings.Contains(answer.Result.Message, "panic") {
			t.Errorf("got %+v, want an internal error that says panic", answer)
		}
	}
}

func TestWhatIsOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	handler := quietHandler(t)
	for _, path := range []string{PathMutateV1, PathValidateV1, PathMutateV2, PathValidateV2, PathValidateAggregatorConfig} {
		for _, object := range []string{`{"apiVersion":"v1","kind":"Pod"}`, `[]`, `"text"`} {
			answer := ask(t, handler, path, reviewOf(t, object, ""))
			if answer.Allowed || answer.Result.Code != http.StatusBadRequest {
				t.Errorf("%s of %s: got %+v, want a bad request", path, object, answer)
			}
		}
	}
}

// quietHandler returns the handler of all paths, without metrics and log.
func quietHandler(tb testing.TB) http.Handler {
	tb.Helper()
	metrics, err := newHookMetrics(nil, logr.Discard())
	if err != nil {
		tb.Fatal(err)
	}
	handler, err := newHandler(logr.Discard(), metrics)
	if err != nil {
		tb.Fatal(err)
	}
	return handler
}
