// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/webhook/podcheck"
	"opendilab.org/di-orchestrator/webhook/validation"
)

func TestAnAdmissionRequestThatIsTooLargeIsRefusedUnread(t *testing.T) {
	t.Parallel()
	handler := quietHandler(t)
	// The API server accepts objects of 3 MiB, and sends the old one with the new one.
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

// TestAnAnswerDoesNotGrowWithWhatIsWrong sends jobs with thousands of errors. The text of the
// errors must not grow with the square of the request.
func TestAnAnswerDoesNotGrowWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	var tasks, targets strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&tasks, `,{"type":"none","name":"task-%d","template":{"spec":{"containers":[{"name":"a"}]}}}`, i)
		fmt.Fprintf(&targets, `,"unknown-%d"`, i)
	}
	head := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"tasks":[`
	for name, job := range map[string]string{
		"policies that name unknown tasks": head + tasks.String()[1:] + `],"successPolicy":{"targetTasks":[` + targets.String()[1:] + `]}}}`,
		"tasks without containers":         head + strings.Repeat(`{"type":"learner"},`, 20_000) + `{"type":"learner"}]}}`,
		"tasks that are numbers":           head + strings.Repeat(`1,`, 100_000) + `1]}}`,
		"a long name":                      head + `{"type":"none","name":"` + strings.Repeat("n", 1<<20) + `"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{PathMutateV2, PathValidateV2} {
				if answer := ask(t, quietHandler(t), path, reviewOf(t, job, "")); answer.Result != nil && len(answer.Result.Message) > 64<<10 {
					t.Errorf("%s: a message of %d bytes", path, len(answer.Result.Message))
				}
			}
		})
	}
}

// TestAValidJobOfManyTasksIsAnswered guards against a time that grows with the cube of the number
// of tasks.
func TestAValidJobOfManyTasksIsAnswered(t *testing.T) {
	t.Parallel()
	var tasks strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&tasks, `,{"type":"none","name":"task-%d","replicas":1,"template":{"spec":{"containers":[{"name":"a"}]}}}`, i)
	}
	job := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"tasks":[` +
		tasks.String()[1:] + `],"elastic":{"task":"task-2999","replicas":1}}}`
	if answer := ask(t, quietHandler(t), PathValidateV2, reviewOf(t, job, job)); !answer.Allowed {
		t.Errorf("refused: %v", answer.Result)
	}
}

func TestAPanicEndsOneRequestAndNotTheServer(t *testing.T) {
	t.Parallel()
	var none map[string]bool
	handler, err := admissionHandler(logr.Discard(), "/panic", hooks{}.validating(func(*validation.Request) field.ErrorList {
		none["a"] = true
		return nil
	}))
	expect.NoError(t, err)
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
	for _, path := range servedPaths() {
		if strings.HasPrefix(path, PathCheckPods) {
			// It refuses nothing.
			continue
		}
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
	return handlerThat(tb, func(context.Context, *podcheck.Pod, string) (podcheck.Findings, error) {
		return podcheck.Findings{}, nil
	})
}

// handlerThat returns a quiet handler that tries pods by a function.
func handlerThat(tb testing.TB, try func(context.Context, *podcheck.Pod, string) (podcheck.Findings, error)) http.Handler {
	tb.Helper()
	metrics, err := newHookMetrics(nil, logr.Discard())
	expect.NoError(tb, err)
	handler, err := newHandler(logr.Discard(), metrics, hooks{checks: newPodChecks(try), guard: openGuard()})
	expect.NoError(tb, err)
	return handler
}
