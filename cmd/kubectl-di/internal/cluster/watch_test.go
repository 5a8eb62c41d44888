// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// tiredAPI is an API server of one job. It fails at first, ends a watch, expires the version that
// the next one starts at, and continues.
type tiredAPI struct {
	*httptest.Server
	mutex          sync.Mutex
	calls, watches int
	version        int
	phase          v2alpha1.Phase
}

func newTiredAPI(t *testing.T) *Cluster {
	t.Helper()
	api := &tiredAPI{version: 1, phase: v2alpha1.JobPending}
	api.Server = httptest.NewServer(api)
	t.Cleanup(api.Close)
	found, err := New(&rest.Config{Host: api.URL}, "rl")
	expect.NoError(t, err)
	return found
}

func (a *tiredAPI) job(annotations map[string]string) string {
	return encode("pong", a.version, a.phase, annotations)
}

// encode returns a job as the API server writes it.
func encode(name string, version int, phase v2alpha1.Phase, annotations map[string]string) string {
	job := v2alpha1.DIJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "rl", UID: "1", ResourceVersion: strconv.Itoa(version), Annotations: annotations},
		Status:     v2alpha1.DIJobStatus{Phase: phase},
	}
	encoded, err := json.Marshal(&job)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

// becomes changes the phase of the job.
func (a *tiredAPI) becomes(phase v2alpha1.Phase) { a.version, a.phase = a.version+1, phase }

func send(w http.ResponseWriter, kind watch.EventType, object string) {
	fmt.Fprintf(w, `{"type":%q,"object":%s}`, kind, object)
}

// ServeHTTP implements http.Handler.
func (a *tiredAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch a.calls++; {
	case a.calls == 1:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case query.Get("watch") == "":
		fmt.Fprintf(w, `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJobList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, a.version, a.job(nil))
		return
	case query.Get("sendInitialEvents") == "true":
		send(w, watch.Added, a.job(nil))
		send(w, watch.Bookmark, a.job(map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	switch a.watches++; a.watches {
	case 1:
		a.becomes(v2alpha1.JobStarting)
		send(w, watch.Modified, a.job(nil))
	case 2:
		a.becomes(v2alpha1.JobRunning)
		send(w, watch.Error, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	default:
		a.becomes(v2alpha1.JobSucceeded)
		send(w, watch.Modified, a.job(nil))
	}
}

// phases returns the phases of a tiredAPI's job.
func phases() []v2alpha1.Phase {
	return []v2alpha1.Phase{v2alpha1.JobPending, v2alpha1.JobStarting, v2alpha1.JobRunning, v2alpha1.JobSucceeded}
}

func pong() *v2alpha1.DIJob {
	return &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "pong", UID: "1"}}
}

func TestAJobIsFollowedThroughWatchesThatEnd(t *testing.T) {
	t.Parallel()
	found := newTiredAPI(t)
	var seen []v2alpha1.Phase
	var said []string
	err := found.FollowJob(t.Context(), pong(), func(line string) { said = append(said, line) }, func(job *v2alpha1.DIJob) (bool, error) {
		seen = append(seen, job.Status.Phase)
		return job.Status.Phase == v2alpha1.JobSucceeded, nil
	})
	if err != nil || !slices.Equal(slices.Compact(seen), phases()) {
		t.Errorf("%v: saw %v", err, seen)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "kubectl-di: watching job rl/pong: ") || !strings.HasSuffix(said[0], "; trying again") {
		t.Errorf("said %q", said)
	}
}

func TestABrokenWatchIsReportedUntilItIsRestored(t *testing.T) {
	t.Parallel()
	found := newTiredAPI(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var broken, restored, complete int
	err := found.Observe(ctx, WatchJob("rl", "pong"), func(change Change) {
		switch {
		case change.Broken != nil:
			broken++
		case change.Restored:
			restored++
		case change.Complete:
			complete++
			stop()
		}
	})
	if err != nil || broken != 1 || restored != 1 || complete != 1 {
		t.Errorf("%v: broken %d times, restored %d times, complete %d times", err, broken, restored, complete)
	}
}

func TestARightThatIsTakenAwayEndsAWatch(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":`+
			`"dijobs is forbidden: User \"bob\" cannot list resource \"dijobs\" in API group \"diengine.opendilab.org\" in the namespace \"rl\""}`)
	}))
	t.Cleanup(api.Close)
	found, err := New(&rest.Config{Host: api.URL}, "rl")
	expect.NoError(t, err)
	if err := found.Observe(t.Context(), WatchJob("rl", "pong"), func(Change) {}); !IsDenied(err) || !strings.Contains(err.Error(), "create role kubectl-di-list-watch-dijobs --verb=list,watch") {
		t.Errorf("got %v", err)
	}
}

func TestAJobThatAStaleCacheLacksIsFollowed(t *testing.T) {
	t.Parallel()
	fresh := &tiredAPI{version: 1, phase: v2alpha1.JobSucceeded}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items := fresh.job(nil)
		switch query := r.URL.Query(); {
		case query.Get("watch") != "":
			// The reflector then lists.
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
			return
		case query.Get("resourceVersion") == "0":
			items = ""
		}
		fmt.Fprintf(w, `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJobList","metadata":{"resourceVersion":"1"},"items":[%s]}`, items)
	}))
	t.Cleanup(api.Close)
	found, err := New(&rest.Config{Host: api.URL}, "rl")
	expect.NoError(t, err)
	if err := found.FollowJob(t.Context(), pong(), func(string) {}, func(*v2alpha1.DIJob) (bool, error) { return true, nil }); err != nil {
		t.Error(err)
	}
}

func TestTheFirstJobsAreSentBeforeTheListIsComplete(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		send(w, watch.Added, encode("pong", 1, v2alpha1.JobRunning, nil))
		send(w, watch.Added, encode("short", 2, v2alpha1.JobRunning, nil))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-seen:
		case <-r.Context().Done():
			return
		}
		send(w, watch.Deleted, encode("short", 3, v2alpha1.JobRunning, nil))
		send(w, watch.Bookmark, encode("", 3, "", map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(api.Close)
	found, err := New(&rest.Config{Host: api.URL}, "rl")
	expect.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var got []string
	err = found.Observe(ctx, WatchJobs("rl").Early(), func(change Change) {
		switch {
		case change.Complete:
			got = append(got, "complete")
			stop()
		case change.Gone:
			got = append(got, change.Object.GetName()+" is gone")
		case change.Object != nil:
			if got = append(got, change.Object.GetName()); len(got) == 2 {
				close(seen)
			}
		}
	})
	expect.NoError(t, err)
	expect.Equal(t, "changes", []string{"pong", "short", "pong", "short is gone", "complete"}, got)
}
