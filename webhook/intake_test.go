// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/webhook/podschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

const mebi = 1 << 20

// listOf returns a list of size bytes with equal items.
func listOf(item string, size int) string {
	return "[" + strings.Repeat(item+",", size/(len(item)+1)) + item + "]"
}

// inTemplate returns a job whose pod template has the given members in its spec.
func inTemplate(members string) string {
	return `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},` +
		`"spec":{"tasks":[{"type":"learner","template":{"spec":{` + members + `}}}]}}`
}

// taken returns how many bytes do allocates. Nothing else may run at the same time.
func taken(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

//nolint:paralleltest // It measures what the process allocates.
func TestAReviewOfMoreValuesThanAnyJobHasIsRefusedBeforeItIsDecoded(t *testing.T) {
	handler := quietHandler(t)
	for name, job := range map[string]string{
		"containers, which take 500 times their JSON": inTemplate(`"containers":` + listOf(`{}`, 4*mebi)),
		"arguments": inTemplate(`"containers":[{"name":"c","args":` + listOf(`""`, 4*mebi) + `}]`),
		"tasks":     `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","spec":{"tasks":` + listOf(`{}`, 4*mebi) + `}}`,
	} {
		for _, path := range servedPaths() {
			review := reviewOf(t, job, "")
			var answer *admissionv1.AdmissionResponse
			if bytes := taken(func() { answer = ask(t, handler, path, review) }); bytes > 32*mebi {
				t.Errorf("%s, %s: %d MiB are allocated for a review of %d", name, path, bytes/mebi, len(review)/mebi)
			}
			if answer.Allowed || answer.Result.Code != http.StatusRequestEntityTooLarge || answer.UID != "u" {
				t.Errorf("%s, %s: got %+v, want a refusal of this review for its size", name, path, answer)
			}
		}
	}
}

// API servers do not read a refusal of another version than the review's.
func TestARefusalIsAReviewOfTheVersionThatIsAsked(t *testing.T) {
	t.Parallel()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathValidateV2,
		bytes.NewReader(reviewOf(t, inTemplate(`"containers":`+listOf(`{}`, 2*mebi)), "")))
	recorder := httptest.NewRecorder()
	quietHandler(t).ServeHTTP(recorder, request)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") {
		t.Errorf("got %s: %v", recorder.Body, err)
	}
}

// The largest object that fits into etcd is answered even if it consists of the shortest variables.
func TestTheLargestReviewOfVariablesIsAnswered(t *testing.T) {
	t.Parallel()
	handler, err := admissionHandler(logr.Discard(), PathValidateV2, hooks{}.validating(validation.NewRules(nil, validation.Bounds{}).ValidateV2))
	expect.NoError(t, err)
	// The duration is not tested: a race detector multiplies it by ten.
	patient := newIntake(func(error) {})
	patient.timeout = time.Hour
	job := inTemplate(`"containers":[{"name":"c","image":"i","env":` + listOf(`{"name":"a","value":"b"}`, 3*mebi/2) + `}]`)
	if answer := ask(t, patient.handler(handler), PathValidateV2, reviewOf(t, job, job)); !answer.Allowed {
		t.Errorf("refused: %v", answer.Result)
	}
}

func TestAJobWithMoreTasksThanOneMayHaveIsRefusedForThatAlone(t *testing.T) {
	t.Parallel()
	handler := quietHandler(t)
	job := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"tasks":` + listOf(`{}`, 12_000) + `}}`
	fewer := strings.Replace(job, "{},", "", 1)
	for _, path := range []string{PathMutateV2, PathValidateV2} {
		for name, review := range map[string][]byte{"new": reviewOf(t, job, ""), "grown": reviewOf(t, job, fewer)} {
			answer := ask(t, handler, path, review)
			if answer.Allowed || answer.Result.Details == nil || len(answer.Result.Details.Causes) != 1 ||
				!strings.Contains(answer.Result.Message, "spec.tasks: Too many: 4001: must have at most 256 items") {
				t.Errorf("%s, %s: got %+v", path, name, answer.Result)
			}
		}
		if answer := ask(t, handler, path, reviewOf(t, fewer, job)); !answer.Allowed {
			t.Errorf("%s: a stored job cannot be made smaller: %v", path, answer.Result)
		}
	}
}

func TestNothingIsDoneForACallerWhoHasGone(t *testing.T) {
	t.Parallel()
	job := inTemplate(`"containers":[{"name":"c","image":"i"}]`)
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update, Name: "j"}}
	request.Object.Raw, request.OldObject.Raw = []byte(job), []byte(job)
	ctx, leave := context.WithCancel(t.Context())
	rules := func(*validation.Request) field.ErrorList { leave(); return nil }
	unknown := func(context.Context) *podschema.Schema { t.Error("fields are checked for nobody"); return nil }
	if response := (hooks{fields: unknown}).validating(rules)(ctx, request); response.Allowed || response.Result.Code != http.StatusServiceUnavailable {
		t.Errorf("got %+v", response)
	}
	defaults := func(*validation.Request) (validation.Patch, error) {
		t.Error("defaults are filled in for nobody")
		return nil, nil
	}
	if response := mutating(defaults)(ctx, request); response.Allowed || response.Result.Code != http.StatusServiceUnavailable {
		t.Errorf("got %+v", response)
	}
}

func TestReviewsThatAreNotAnsweredAreCountedByReason(t *testing.T) {
	t.Parallel()
	metrics, err := newHookMetrics(nil, logr.Discard())
	expect.NoError(t, err)
	handler, err := newHandler(logr.Discard(), metrics, hooks{guard: openGuard()})
	expect.NoError(t, err)
	ask(t, handler, PathValidateV2, reviewOf(t, inTemplate(`"containers":`+listOf(`{}`, 2*mebi)), ""))
	ask(t, handler, PathMutateV2, bytes.Repeat([]byte("x"), maxAdmissionBytes+1))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathConvert, strings.NewReader("{}")))
	for reason, want := range map[string]float64{refusedValues: 1, netlimit.ReasonSize: 1, netlimit.ReasonRoom: 0} {
		if counted := testutil.ToFloat64(metrics.refused.WithLabelValues(reason)); counted != want {
			t.Errorf("%s: %v are counted, want %v", reason, counted, want)
		}
	}
}

func TestConversionReviewsMayTakeAFifthOfTheMemory(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int64{math.MaxInt64: 128 * mebi, 691 * mebi: 128 * mebi, 230 * mebi: 46 * mebi, 1 * mebi: 8 * mebi} {
		if got := reviewBytes(limit); got != want {
			t.Errorf("with %d: %d, want %d", limit, got, want)
		}
	}
}
