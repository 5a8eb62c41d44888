// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func reviewTo(apiVersion string, objects ...string) string {
	return fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`,
		apiVersion, strings.Join(objects, ","))
}

func reviewOf(objects ...string) string {
	return reviewTo(v2alpha1.GroupVersion.String(), objects...)
}

func jobNamed(version, name string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"DIJob","metadata":{"namespace":"ns","name":%q},"spec":{"coordinator":{}}}`,
		v1alpha1.GroupName, version, name)
}

// manyJobs returns jobs that alternate between the versions, named by their index.
func manyJobs(count int) []string {
	jobs := make([]string, count)
	for i := range jobs {
		jobs[i] = jobNamed([]string{"v1alpha1", "v2alpha1"}[i%2], fmt.Sprintf("job-%d", i))
	}
	return jobs
}

// unannounced hides the length of a body.
type unannounced struct{ io.Reader }

func serve(ctx context.Context, handler http.Handler, method string, body io.Reader) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, method, "/convert", body))
	return recorder
}

// ask sends a review and decodes the answer.
func ask(t *testing.T, handler http.Handler, body string) *apiextensionsv1.ConversionResponse {
	t.Helper()
	recorder := serve(t.Context(), handler, http.MethodPost, strings.NewReader(body))
	if recorder.Code != http.StatusOK {
		t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
	}
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v in %s", err, recorder.Body)
	}
	if answer.Kind != "ConversionReview" || answer.APIVersion != "apiextensions.k8s.io/v1" || answer.Response == nil || answer.Response.UID != "u-1" {
		t.Fatalf("answer: %.1000s", recorder.Body)
	}
	return answer.Response
}

// checkFailure checks that a review failed as a whole, and why.
func checkFailure(t *testing.T, response *apiextensionsv1.ConversionResponse, message string) {
	t.Helper()
	if response.Result.Status != "Failure" || len(response.ConvertedObjects) != 0 {
		t.Errorf("status %q with %d objects, want a failure without any", response.Result.Status, len(response.ConvertedObjects))
	}
	expect.Equal(t, "message", message, response.Result.Message)
}

// recording stores the calls that it receives.
type recording struct {
	lock     sync.Mutex
	outcomes []Outcome
	held     int64
	holding  chan int64
}

func (r *recording) Holding(bytes int64) {
	r.lock.Lock()
	r.held += bytes
	r.lock.Unlock()
	if r.holding != nil && bytes > 0 {
		r.holding <- bytes
	}
}

func (r *recording) Refused(error) {}

func (r *recording) Reviewed(_ context.Context, outcome Outcome) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.outcomes = append(r.outcomes, outcome)
}

func TestThousandsOfObjectsAreAnsweredInTheirOrder(t *testing.T) {
	t.Parallel()
	response := ask(t, NewHandler(Options{}), reviewOf(manyJobs(5000)...))
	if response.Result.Status != "Success" || len(response.ConvertedObjects) != 5000 {
		t.Fatalf("%+v with %d objects", response.Result, len(response.ConvertedObjects))
	}
	for i, converted := range response.ConvertedObjects {
		var job v2alpha1.DIJob
		expect.NoError(t, json.Unmarshal(converted.Raw, &job))
		if job.APIVersion != v2alpha1.GroupVersion.String() || job.Name != fmt.Sprintf("job-%d", i) {
			t.Fatalf("object %d is %s %s", i, job.APIVersion, job.Name)
		}
	}
}

func TestAFailureNamesAllObjectsThatDoNotConvert(t *testing.T) {
	t.Parallel()
	const known = "diengine.opendilab.org/v1alpha1 nor diengine.opendilab.org/v2alpha1"
	jobs := manyJobs(3000)
	jobs[7] = jobNamed("v1", "bad")
	jobs[1500] = `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"Pod","metadata":{"name":"p"}}`
	jobs[2999] = `null`
	checkFailure(t, ask(t, NewHandler(Options{}), reviewOf(jobs...)),
		`request.objects[7] (DIJob ns/bad): apiVersion: "diengine.opendilab.org/v1" is neither `+known+
			`; request.objects[1500] (Pod /p): kind: "Pod" is not one of those with several versions, DIJob and AggregatorConfig`+
			`; request.objects[2999]: the object is not a JSON object`)
}

func TestAFailureIsBounded(t *testing.T) {
	t.Parallel()
	var jobs []string
	for i := range 4000 {
		jobs = append(jobs, jobNamed("v1", fmt.Sprintf("%04d%s", i, strings.Repeat("n", 1000))))
	}
	response := ask(t, NewHandler(Options{}), reviewOf(jobs...))
	message := response.Result.Message
	for _, want := range []string{"request.objects[0] (DIJob ns/0000nn", "; request.objects[9] (DIJob ns/0009nn", "; and 3990 more"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message lacks %q: %s", want, message)
		}
	}
	if len(message) > 6000 || response.Result.Status != "Failure" {
		t.Errorf("%s with a message of %d bytes", response.Result.Status, len(message))
	}
}

func TestAPanicCostsOneAnswer(t *testing.T) {
	t.Parallel()
	observer := &recording{}
	handler := NewHandler(Options{Observer: observer})
	handler.convert = func(raw []byte, apiVersion string) ([]byte, error) {
		if strings.Contains(string(raw), `"fatal"`) {
			_ = strings.Repeat("", -len(raw))
		}
		return convertValid(raw, apiVersion)
	}
	checkFailure(t, ask(t, handler, reviewOf(jobNamed("v1alpha1", "a"), jobNamed("v1alpha1", "fatal"), `1`)),
		`request.objects[1] (DIJob ns/fatal): panic while converting: strings: negative Repeat count`+
			`; request.objects[2]: the object is not a JSON object`)
	outcome := observer.outcomes[0]
	if outcome.Panics != 1 || len(outcome.Panicked) != 1 {
		t.Fatalf("told of %d panics: %+v", outcome.Panics, outcome.Panicked)
	}
	if fault := outcome.Panicked[0]; fault.Object != "request.objects[1] (DIJob ns/fatal)" || fault.Namespace != "ns" || fault.Name != "fatal" ||
		fault.Cause != "strings: negative Repeat count" || !strings.Contains(fault.Stack, "handler_test.go") {
		t.Errorf("told of %+v", fault)
	}
	if response := ask(t, handler, reviewOf(manyJobs(10)...)); response.Result.Status != "Success" {
		t.Errorf("after the panic: %+v", response.Result)
	}
}

func TestTheObserverIsToldWhatBecameOfTheObjects(t *testing.T) {
	t.Parallel()
	observer := &recording{}
	handler := NewHandler(Options{Observer: observer})
	ask(t, handler, reviewOf(append(manyJobs(3000), jobNamed("v9", "x"), `{}`)...))
	want := []Outcome{{Objects: 3002, Conversions: map[Conversion]int{
		{"v1alpha1", "v2alpha1", ResultConverted}: 1500,
		{"v2alpha1", "v2alpha1", ResultUnchanged}: 1500,
		{"other", "v2alpha1", ResultFailed}:       2,
	}}}
	expect.Equal(t, "told", want, observer.outcomes)
	if observer.held != 0 {
		t.Errorf("%d bytes are still held", observer.held)
	}
}

func TestWhatIsNoReviewIsRefused(t *testing.T) {
	t.Parallel()
	jobs := strings.Join(manyJobs(3000), ",")
	long := strings.Repeat(" ", 2_000_000)
	for name, tc := range map[string]struct {
		method string
		body   io.Reader
		want   int
	}{
		"no JSON":             {http.MethodPost, strings.NewReader(`{"kind":`), http.StatusBadRequest},
		"another kind":        {http.MethodPost, strings.NewReader(`{"kind":"Pod","apiVersion":"v1"}`), http.StatusBadRequest},
		"another version":     {http.MethodPost, strings.NewReader(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1beta1"}`), http.StatusBadRequest},
		"no request":          {http.MethodPost, strings.NewReader(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}`), http.StatusBadRequest},
		"request null":        {http.MethodPost, strings.NewReader(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":null}`), http.StatusBadRequest},
		"no uid":              {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `"uid":"u-1",`, ``, 1)), http.StatusBadRequest},
		"uid a number":        {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `"u-1"`, `1`, 1)), http.StatusBadRequest},
		"objects no list":     {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `[]`, `{}`, 1)), http.StatusBadRequest},
		"a uid twice":         {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `"uid"`, `"uid":"u-0","uid"`, 1)), http.StatusBadRequest},
		"objects twice":       {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `[]`, `[],"objects":[]`, 1)), http.StatusBadRequest},
		"a request twice":     {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `"request"`, `"request":{},"request"`, 1)), http.StatusBadRequest},
		"text after it":       {http.MethodPost, strings.NewReader(reviewOf() + "x"), http.StatusBadRequest},
		"NUL after it":        {http.MethodPost, strings.NewReader(reviewOf() + "\x00"), http.StatusBadRequest},
		"a late bad object":   {http.MethodPost, strings.NewReader(reviewOf(jobs, `{"a":[}`)), http.StatusBadRequest},
		"a bad unknown field": {http.MethodPost, strings.NewReader(strings.Replace(reviewOf(), `"uid"`, `"new":{"a" 1},"uid"`, 1)), http.StatusBadRequest},
		"a comma too many":    {http.MethodPost, strings.NewReader(reviewOf(jobs, ``)), http.StatusBadRequest},
		"empty":               {http.MethodPost, strings.NewReader(``), http.StatusBadRequest},
		"shorter than told":   {http.MethodPost, io.LimitReader(strings.NewReader(reviewOf()), 20), http.StatusBadRequest},
		"a GET":               {http.MethodGet, http.NoBody, http.StatusMethodNotAllowed},
		"too big":             {http.MethodPost, strings.NewReader(reviewOf(long)), http.StatusRequestEntityTooLarge},
		"too big, untold":     {http.MethodPost, unannounced{strings.NewReader(reviewOf(long))}, http.StatusRequestEntityTooLarge},
		"too many objects":    {http.MethodPost, strings.NewReader(reviewOf(strings.Repeat("1,", maxObjects) + "1")), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observer := &recording{}
			handler := NewHandler(Options{MaxReviewBytes: 1_500_000, Observer: observer})
			if got := serve(t.Context(), handler, tc.method, tc.body); got.Code != tc.want {
				t.Errorf("status %d, want %d: %s", got.Code, tc.want, got.Body)
			}
			if observer.held != 0 {
				t.Errorf("%d bytes are still held", observer.held)
			}
		})
	}
}

func TestWhatAReviewMayLackOrHaveBesides(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"an empty list":     reviewOf(),
		"no list":           strings.Replace(reviewOf(), `,"objects":[]`, ``, 1),
		"null for a list":   strings.Replace(reviewOf(), `[]`, `null`, 1),
		"unknown fields":    strings.Replace(reviewOf(), `"uid"`, `"new":{"a":[1e5,"\u00e4"]},"uid"`, 1),
		"objects first":     `{"request":{"objects":[],"desiredAPIVersion":"diengine.opendilab.org/v2alpha1","uid":"u-1"},"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`,
		"space all around":  " " + strings.NewReplacer(`{`, "{\n", `,`, "\t,\r\n", `:`, " : ").Replace(reviewOf()) + "\n",
		"names with escape": strings.Replace(reviewOf(), `"uid"`, `"\u0075id"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := ask(t, NewHandler(Options{}), body)
			if response.Result.Status != "Success" || len(response.ConvertedObjects) != 0 {
				t.Errorf("answer: %+v", response)
			}
		})
	}
}

func TestAnObjectOfTheWantedVersionStaysAsItIs(t *testing.T) {
	t.Parallel()
	written := `{"kind":"DIJob", "spec":{"a":1.50,"a":2}, "apiVersion":"diengine.opendilab.org/v2alpha1" }`
	recorder := serve(t.Context(), NewHandler(Options{}), http.MethodPost, strings.NewReader(reviewOf(written)))
	if !strings.Contains(recorder.Body.String(), `"convertedObjects":[`+written+`]`) {
		t.Errorf("answer: %s", recorder.Body)
	}
}

func TestOfAMemberThatAnObjectHasTwiceTheLastCounts(t *testing.T) {
	t.Parallel()
	response := ask(t, NewHandler(Options{}), reviewOf(
		`{"apiVersion":"v1","apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","spec":{"group":"a"},"spec":{"coordinator":{},"group":"b","group":"c"}}`))
	var job v2alpha1.DIJob
	expect.NoError(t, json.Unmarshal(response.ConvertedObjects[0].Raw, &job))
	if job.Spec.Group != "c" || len(job.Spec.Tasks) != 1 {
		t.Errorf("converted to %s", response.ConvertedObjects[0].Raw)
	}
}

func TestAnUnknownWantedVersionIsNamedOnce(t *testing.T) {
	t.Parallel()
	checkFailure(t, ask(t, NewHandler(Options{}), reviewTo("diengine.opendilab.org/v3", manyJobs(100)...)),
		`request.desiredAPIVersion: "diengine.opendilab.org/v3" is neither diengine.opendilab.org/v1alpha1 nor diengine.opendilab.org/v2alpha1`)
}

func TestSendersThatAnnounceMuchAndSendNothingHoldUpNobody(t *testing.T) {
	t.Parallel()
	for name, announced := range map[string]int64{"small reviews": smallReviewBytes, "lists": DefaultMaxReviewBytes, "of unknown length": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observer := &recording{holding: make(chan int64, 100)}
			handler := NewHandler(Options{Observer: observer})
			var writers []*io.PipeWriter
			var slow sync.WaitGroup
			for range 50 {
				body, writer := io.Pipe()
				writers = append(writers, writer)
				slow.Go(func() {
					request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", body)
					request.ContentLength = announced
					handler.ServeHTTP(httptest.NewRecorder(), request)
				})
				if held := <-observer.holding; held > 64<<10 {
					t.Errorf("a review of which nothing has come holds %d bytes", held)
				}
			}
			for _, review := range []io.Reader{strings.NewReader(reviewOf(manyJobs(1)...)), unannounced{strings.NewReader(reviewOf(manyJobs(1)...))}} {
				if got := serve(t.Context(), handler, http.MethodPost, review); got.Code != http.StatusOK {
					t.Errorf("another's review: status %d: %s", got.Code, got.Body)
				}
			}
			for _, writer := range writers {
				_ = writer.CloseWithError(io.ErrUnexpectedEOF)
			}
			slow.Wait()
			if observer.held != 0 {
				t.Errorf("%d bytes are still held", observer.held)
			}
		})
	}
}

func TestNoMoreIsConvertedAtATimeThanThereAreProcessors(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int64
	handler := NewHandler(Options{})
	handler.convert = func(raw []byte, apiVersion string) ([]byte, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			continue
		}
		runtime.Gosched()
		return convertValid(raw, apiVersion)
	}
	var reviews sync.WaitGroup
	for range 8 {
		reviews.Go(func() {
			serve(t.Context(), handler, http.MethodPost, strings.NewReader(reviewOf(manyJobs(2000)...)))
		})
	}
	reviews.Wait()
	if most.Load() > int64(runtime.GOMAXPROCS(0)) {
		t.Errorf("%d objects were converted at a time", most.Load())
	}
}

func TestASenderWhoLeavesEndsTheConversion(t *testing.T) {
	t.Parallel()
	// Three objects are one batch. Only the first is converted.
	for objects, most := range map[int]int64{3: 1, 20_000: 19_999} {
		ctx, cancel := context.WithCancel(t.Context())
		var converted atomic.Int64
		handler := NewHandler(Options{})
		handler.convert = func(raw []byte, apiVersion string) ([]byte, error) {
			converted.Add(1)
			cancel()
			return convertValid(raw, apiVersion)
		}
		recorder := serve(ctx, handler, http.MethodPost, strings.NewReader(reviewOf(manyJobs(objects)...)))
		if recorder.Code != http.StatusServiceUnavailable || converted.Load() > most {
			t.Errorf("status %d after %d of %d objects", recorder.Code, converted.Load(), objects)
		}
	}
}

// manyItems returns a job of v1alpha1 whose extended has a list of empty objects.
func manyItems(list string, size int) string {
	return `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"coordinator":{},"extended":{"` +
		list + `":[{}` + strings.Repeat(`,{}`, size/3) + `]}}}`
}

func TestAnObjectThatNoAPIServerStoresIsNotConverted(t *testing.T) {
	t.Parallel()
	handler := NewHandler(Options{})
	handler.convert = func([]byte, string) ([]byte, error) {
		t.Error("it is converted")
		return nil, nil
	}
	for what, object := range map[string]string{
		"bytes":       longJob(maxObjectBytes),
		"JSON values": manyItems("volumes", 3*maxObjectValues),
		"tasks":       manyItems("tasks", 3*maxObjectTasks),
	} {
		response := ask(t, handler, reviewOf(object))
		const want = "request.objects[0] (DIJob n/j): the object has "
		if message := response.Result.Message; response.Result.Status != "Failure" || !strings.HasPrefix(message, want) || !strings.Contains(message, " "+what+"; it must have at most ") {
			t.Errorf("%s: got %q", what, message)
		}
	}
}

// longJob returns a job of v1alpha1 that is mostly one string with this number of bytes.
func longJob(size int) string {
	return `{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob","metadata":{"name":"j","namespace":"n"},"spec":{"coordinator":{},"extended":{"group":"` +
		strings.Repeat("a", size) + `"}}}`
}

func TestOneLargeObjectIsConvertedAtATime(t *testing.T) {
	t.Parallel()
	handler := NewHandler(Options{})
	handler.slots = semaphore.NewWeighted(8)
	var running atomic.Int64
	handler.convert = func(raw []byte, _ string) ([]byte, error) {
		if running.Add(1) > 1 {
			t.Error("two are converted at a time")
		}
		runtime.Gosched()
		running.Add(-1)
		return raw, nil
	}
	large := reviewOf(longJob(maxObjectBytes * 3 / 4))
	var reviews sync.WaitGroup
	for range 8 {
		reviews.Go(func() { serve(t.Context(), handler, http.MethodPost, strings.NewReader(large)) })
	}
	reviews.Wait()
}

func TestAnObjectIsConvertedBesideALargeOne(t *testing.T) {
	t.Parallel()
	handler := NewHandler(Options{})
	handler.slots = semaphore.NewWeighted(1)
	begun, release := make(chan struct{}), make(chan struct{})
	handler.convert = func(raw []byte, apiVersion string) ([]byte, error) {
		if len(raw) > 2*batchBytes {
			close(begun)
			<-release
		}
		return convertValid(raw, apiVersion)
	}
	var large sync.WaitGroup
	large.Go(func() {
		serve(t.Context(), handler, http.MethodPost, strings.NewReader(reviewOf(longJob(3*batchBytes))))
	})
	<-begun
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	small := serve(patient, handler, http.MethodPost, strings.NewReader(reviewOf(jobNamed("v1alpha1", "small"))))
	if small.Code != http.StatusOK {
		t.Errorf("status %d: %s", small.Code, small.Body)
	}
	close(release)
	large.Wait()
}

//nolint:paralleltest // It measures what the process allocates.
func TestWhatExtendedHoldsIsJudgedWithoutMakingIt(t *testing.T) {
	for item, isHeld := range map[string]bool{`{}`: true, `1`: false, `{"name":1}`: false, `{"name":"a"}`: true, `{"template":{"a":1}}`: true} {
		raw := []byte(`{"tasks":[` + strings.Repeat(`{},`, 1_000_000) + item + `]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		kept := held[v2alpha1.DIJobSpec](raw)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
			t.Errorf("a list of %s: %d bytes are allocated for %d", item, taken, len(raw))
		}
		if (len(kept) == 1) != isHeld {
			t.Errorf("a list of %s is kept: %v", item, len(kept) == 1)
		}
	}
}
